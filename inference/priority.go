package inference

import (
	"fmt"

	"tranche/episode"
)

// A call's priority means one thing here, higher = sooner, and is written as each server reads it. What a user puts into the body by the name of priority
// goes out as it stands.

const fieldPriority = "priority"

// priorities are how a server takes them.
type priorities struct {
	order Order // "" = not known
	share bool  // TensorRT-LLM: a number from 0 to 1, 0.5 = neither
}

func prioritiesOf(c *Capabilities) priorities {
	if !c.Priority.Known() {
		return priorities{}
	}
	return priorities{order: c.Priority.Value, share: c.Kind.Value == KindTensorRT}
}

// rank is a priority as the server reads it; false = it is not sent.
func (p priorities) rank(priority int) (any, bool) {
	switch {
	case priority == 0 || p.order != LowFirst && p.order != HighFirst:
		return nil, false
	case p.order == LowFirst:
		priority = -priority
	}
	if !p.share {
		return priority, true
	}
	x := float64(priority)
	return 0.5 + x/(2*(1+max(x, -x))), true
}

// of is the priority of a call as it is sent; false = it is not.
func (p priorities) of(c *episode.Call, d dialect) (any, bool) {
	if d.drops(fieldPriority) {
		return nil, false
	}
	return p.rank(c.Sampling.Priority)
}

func (e *Endpoint) priority(c *episode.Call) (any, bool) {
	return e.facts.order.of(c, *e.dialect.Load())
}

// PriorityUnsent says why priorities are not sent to this server, "" = they are.
func (e *Endpoint) PriorityUnsent() string {
	f := e.caps.Load().Priority
	switch {
	case e.facts.order.order == NoPriority:
		return fmt.Sprintf("it takes calls in the order in which they come (%s)", f.From)
	case e.facts.order.order == "":
		return "which value it takes for more urgent is not known"
	}
	return ""
}
