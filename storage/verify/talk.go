package verify

import (
	"cmp"
	"fmt"
	"slices"

	"tranche/episode"
	"tranche/storage"
)

func promptMessages(r *row) (column, what string) {
	if n := int(r.NumPromptMessages); n < 0 || n > len(r.Messages) {
		return "num_prompt_messages", fmt.Sprintf("num_prompt_messages is %d, there are %d messages", n, len(r.Messages))
	}
	return "", ""
}

// said are the messages behind the prompt.
func (r *row) said() []storage.Message {
	return r.Messages[min(max(int(r.NumPromptMessages), 0), len(r.Messages)):]
}

func numTurns(r *row) (column, what string) {
	if int(r.NumTurns) != len(r.Turns) {
		return "num_turns", fmt.Sprintf("num_turns is %d, there are %d turns", r.NumTurns, len(r.Turns))
	}
	return "", ""
}

// answered is how many actions each turn has; the second value is the first action that is of no turn, -1 = none.
func (r *row) answered() (perTurn []int, stray int) {
	perTurn = make([]int, len(r.Turns))
	last := int16(0)
	for i, a := range r.Actions {
		if a.Turn < last || int(a.Turn) >= len(perTurn) {
			return perTurn, i
		}
		perTurn[a.Turn]++
		last = a.Turn
	}
	return perTurn, -1
}

// roles holds the order: an answer of the assistant for each turn, behind it one message for each of its actions.
func roles(r *row) (column, what string) {
	if column, _ := promptMessages(r); column != "" {
		return "", ""
	}
	for i, m := range r.Messages {
		if text(m.Role) == "" {
			return "messages", fmt.Sprintf("message %d has no role", i)
		}
	}
	perTurn, stray := r.answered()
	said := r.said()
	if stray >= 0 || len(said) != len(r.Turns)+len(r.Actions) {
		if stray < 0 {
			return "messages", fmt.Sprintf("%d messages stand behind the prompt: expected %d of the assistant and %d answers to actions", len(said), len(r.Turns), len(r.Actions))
		}
		return "", "" // actions says so
	}
	at := 0
	for t, n := range perTurn {
		if role := text(said[at].Role); role != episode.RoleAssistant {
			return "messages", fmt.Sprintf("the message of turn %d is of the %s", t+1, role)
		}
		for i := at + 1; i <= at+n; i++ {
			if role := text(said[i].Role); role != episode.RoleTool && role != episode.RoleUser {
				return "messages", fmt.Sprintf("an answer to an action of turn %d is of the %s", t+1, role)
			}
		}
		at += 1 + n
	}
	return "", ""
}

// turnMessages are the messages of each turn: that of the assistant and its index, and those that answer its actions; nil where they are not in
// order, which is a matter of roles.
func (r *row) turnMessages() (list []turnTalk) {
	if column, _ := roles(r); column != "" {
		return nil
	}
	perTurn, stray := r.answered()
	if stray >= 0 || len(r.said()) != len(r.Turns)+len(r.Actions) {
		return nil
	}
	at, action := len(r.Messages)-len(r.said()), 0
	for _, n := range perTurn {
		list = append(list, turnTalk{at, r.Messages[at], r.Messages[at+1 : at+1+n], r.Actions[action : action+n]})
		at, action = at+1+n, action+n
	}
	return list
}

type turnTalk struct {
	at      int
	message storage.Message
	answers []storage.Message
	actions []storage.Action
}

// calls are those of a message, or the one that was read out of its text.
func (r *row) calls(t turnTalk) (list []storage.ToolCall, written bool) {
	if len(t.message.ToolCalls) > 0 {
		return t.message.ToolCalls, false
	}
	for _, f := range r.Forms {
		if int(f.Message) == t.at && f.CallName != nil {
			return []storage.ToolCall{{ID: text(f.CallID), Function: storage.Function{Name: *f.CallName}}}, true
		}
	}
	return nil, false
}

func actionsMatch(r *row) (column, what string) {
	if _, stray := r.answered(); stray >= 0 {
		return "actions", fmt.Sprintf("actions[%d] is of turn %d: expected the turns in order, of %d", stray, r.Actions[stray].Turn+1, len(r.Turns))
	}
	list := r.turnMessages()
	for i, t := range list {
		calls, _ := r.calls(t)
		if r.lacks("forms") && len(calls) == 0 && len(t.actions) == 1 { // read out of the text, by a program that did not store how
			continue
		}
		if len(t.actions) != len(calls) && (len(t.actions) > 0 || i < len(list)-1) {
			return "actions", fmt.Sprintf("turn %d has %d tool calls and %d actions", i+1, len(calls), len(t.actions))
		}
		for k, a := range t.actions {
			if text(a.CallID) != calls[k].ID || text(a.Name) != calls[k].Function.Name {
				return "actions", fmt.Sprintf("turn %d: action %d is %s %q, its call is %s %q", i+1, k+1, text(a.Name), text(a.CallID), calls[k].Function.Name, calls[k].ID)
			}
		}
	}
	return "", ""
}

func toolMessages(r *row) (column, what string) {
	for i, t := range r.turnMessages() {
		calls, written := r.calls(t)
		for k, m := range t.answers {
			if written || len(calls) == 0 || r.lacks("forms") && text(m.Role) == episode.RoleUser {
				continue // told in the words of the run's own form
			}
			if role, id := text(m.Role), text(m.ToolCallID); role != episode.RoleTool || id != text(t.actions[k].CallID) {
				return "messages", fmt.Sprintf("turn %d: the answer to action %d is a message of the %s for call %q: expected one of a tool for call %q", i+1, k+1, role, id, text(t.actions[k].CallID))
			}
		}
	}
	return "", ""
}

func forms(r *row) (column, what string) {
	seen := map[int32]bool{}
	for i, f := range r.Forms {
		switch {
		case f.Message < 0 || f.Message < r.NumPromptMessages || int(f.Message) >= len(r.Messages) || text(r.Messages[f.Message].Role) != episode.RoleAssistant:
			return "forms", fmt.Sprintf("forms[%d] is of message %d, which is no answer of the model", i, f.Message)
		case seen[f.Message]:
			return "forms", fmt.Sprintf("forms[%d] is the second one of message %d", i, f.Message)
		}
		seen[f.Message] = true
	}
	return "", ""
}

func rawAnswers(r *row) (column, what string) {
	for i, a := range r.Raw {
		switch {
		case int64(len(a.Body)) > a.Bytes:
			return "raw", fmt.Sprintf("raw[%d] has %d bytes of %d", i, len(a.Body), a.Bytes)
		case a.Turn < 0 || int(a.Turn) > len(r.Turns) || int(a.Turn) == len(r.Turns) && a.Class == nil:
			return "raw", fmt.Sprintf("raw[%d] is of turn %d, of %d", i, a.Turn+1, len(r.Turns))
		}
	}
	return "", ""
}

// stops are the stop reasons that go with a status.
func stops(s episode.Status) []episode.Stop {
	switch s {
	case episode.StatusCompleted:
		return []episode.Stop{episode.StopStop, episode.StopUnknown, episode.StopOther, episode.StopSubmit, episode.StopToolCalls}
	case episode.StatusTruncated:
		return []episode.Stop{episode.StopLength, episode.StopContextFull, episode.StopMaxTurns, episode.StopBudget}
	case episode.StatusFailed:
		return []episode.Stop{episode.StopFault}
	case episode.StatusCancelled:
		return []episode.Stop{episode.StopQuorum}
	}
	return nil
}

func statusFits(r *row) (column, what string) {
	status, stop := episode.Status(text(r.Status)), episode.Stop(text(r.StopReason))
	allowed := stops(status)
	lost := lostRow(r.Row)
	switch {
	case allowed == nil:
		return "status", fmt.Sprintf("status is %q", status)
	case !slices.Contains(allowed, stop):
		return "stop_reason", fmt.Sprintf("stop_reason is %q where status is %s", stop, status)
	case lost && r.FaultClass == nil, !lost && (r.FaultClass != nil || r.FaultStage != nil || r.FaultDetail != nil || r.FaultAttempts != nil):
		return "fault_class", fmt.Sprintf("fault_class is %s where status is %s", cmp.Or(text(r.FaultClass), "null"), status)
	case lost && r.Reward != nil:
		return "reward", fmt.Sprintf("reward is %g where status is %s", *r.Reward, status)
	}
	return "", ""
}
