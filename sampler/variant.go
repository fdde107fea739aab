package sampler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/episode"
)

// Variant is one way to put a task, for exploration: another system prompt, or other words around the question. Every group gets one of
// them by chance, all its samples the same; evaluations get none.
type Variant struct {
	// Name is what the row records. Not blank, unique.
	Name string
	// System takes the place of the task's system message, or is put first. Default "": as the task says.
	System string
	// Prompt takes the place of the last user message; {prompt} in it stands for that message's own text. Default "": as the task says.
	Prompt string
}

// promptMark is what stands for the task's own text in Variant.Prompt.
const promptMark = "{prompt}"

func checkVariants(list []Variant) error {
	var errs []error
	names := map[string]bool{}
	for i, v := range list {
		fault := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("prompt variant %d (%q): %s", i, v.Name, fmt.Sprintf(format, args...)))
		}
		if strings.TrimSpace(v.Name) == "" {
			fault("its name is blank")
		}
		if names[v.Name] {
			fault("another one has that name")
		}
		if v.Prompt != "" && !strings.Contains(v.Prompt, promptMark) {
			fault("prompt: holds no %s, so every task would be the same", promptMark)
		}
		names[v.Name] = true
	}
	return errors.Join(errs...)
}

// Vary returns the prompt of a draw and the name of its variant, "" where it has none: then the prompt is the task's own. The messages are
// the caller's.
func (k *Knobs) Vary(d episode.Draw) (name string, prompt []episode.Message) {
	if len(k.cfg.Variants) == 0 || d.HeldOut {
		return "", nil
	}
	n := hash64("variant", strconv.FormatInt(k.cfg.Seed, 10), d.Task.ID, strconv.Itoa(d.Round))
	v := k.cfg.Variants[n%uint64(len(k.cfg.Variants))]
	return v.Name, v.apply(slices.Clone(d.Task.Messages))
}

func (v Variant) apply(prompt []episode.Message) []episode.Message {
	if v.Prompt != "" {
		for i, m := range slices.Backward(prompt) {
			if m.Role == episode.RoleUser && m.Content != nil {
				prompt[i].Content = episode.Ptr(strings.ReplaceAll(v.Prompt, promptMark, *m.Content))
				break
			}
		}
	}
	if v.System == "" {
		return prompt
	}
	prompt = slices.DeleteFunc(prompt, func(m episode.Message) bool { return m.Role == episode.RoleSystem })
	return slices.Insert(prompt, 0, episode.Message{Role: episode.RoleSystem, Content: episode.Ptr(v.System)})
}

// hash64 is a number made of texts: the same in every process.
func hash64(parts ...string) uint64 {
	n, err := strconv.ParseUint(episode.ID(parts...)[:16], 16, 64)
	if err != nil {
		panic("episode.ID gave no hex") // a bug there
	}
	return n
}

// chance is a number from 0 to 1, 1 excluded, made of texts.
func chance(parts ...string) float64 { return float64(hash64(parts...)>>11) / (1 << 53) }
