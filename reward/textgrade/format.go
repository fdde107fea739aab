package textgrade

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"tranche/episode"
	"tranche/reward"
)

// FormatConfig are the options of kind format: tags, pattern or both.
type FormatConfig struct {
	// Tags are the blocks that the text must be made of, in this order, each once: [think, answer] for
	// <think>…</think><answer>…</answer>. Default none.
	Tags []string `json:"tags"`
	// Around allows text before, between and behind the blocks. Default false: only white space.
	Around bool `json:"around"`
	// Pattern is a regular expression (RE2 syntax) that all of the text must match; . stands for a line end too. Default none.
	Pattern string `json:"pattern"`
	// Partial gives the share of the tags that stand once, in place of nothing, where the whole is wrong. Default false.
	Partial bool `json:"partial"`
}

// format is the format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2) as open-r1 has it (format_reward), its share of right tags
// that of tag_count_reward. What the model thought is part of the text, with its tags, also where the server or this program took it out
// of the content.
type format struct {
	cfg     FormatConfig
	pattern *regexp.Regexp // nil = none
}

func newFormat(s reward.Spec) (reward.Grader, error) {
	var cfg FormatConfig
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	var errs []error
	if len(cfg.Tags) == 0 && cfg.Pattern == "" {
		errs = append(errs, errors.New("tags: is missing; expected tags, pattern or both"))
	}
	for i, t := range cfg.Tags {
		if t == "" || strings.ContainsAny(t, "<>/ \t\n") {
			errs = append(errs, fmt.Errorf("tags[%d]: %q, expected a name as it stands in <name>", i, t))
		}
		for _, before := range cfg.Tags[:i] {
			if t == before {
				errs = append(errs, fmt.Errorf("tags[%d]: %q is there already; each tag stands once", i, t))
			}
		}
	}
	g := format{cfg: cfg}
	if cfg.Pattern != "" {
		re, err := regexp.Compile(`(?s)\A(?:` + cfg.Pattern + `)\z`)
		if err != nil {
			errs = append(errs, fmt.Errorf("pattern: %w (RE2 syntax)", err))
		}
		g.pattern = re
	}
	return g, errors.Join(errs...)
}

func (format) ID() string { return "format/1" }

func (g format) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	in.Text = spoken(in)
	text, f, done, err := judged(in)
	if done {
		return f, err
	}
	once := onceShare(text, g.cfg.Tags)
	why := g.fault(text)
	f = reward.Finding{Score: boolScore(why == ""), Evidence: why}
	if why == "" {
		f.Evidence = "as asked for"
	} else if g.cfg.Partial {
		f.Score = once / 2 // less than the whole, however right the tags
	}
	if len(g.cfg.Tags) > 0 {
		f.Parts = []reward.Part{recorded("tags", once, nil)}
	}
	return f, nil
}

// fault is what is wrong with the text, "" = nothing.
func (g format) fault(text string) string {
	if len(g.cfg.Tags) > 0 {
		if why := tagFault(text, g.cfg.Tags, g.cfg.Around); why != "" {
			return why
		}
	}
	if g.pattern != nil && !g.pattern.MatchString(text) {
		return "the text is not as the pattern says"
	}
	return ""
}

func tagFault(text string, tags []string, around bool) string {
	at := 0
	for _, name := range tags {
		for _, tag := range []string{"<" + name + ">", "</" + name + ">"} {
			if n := strings.Count(text, tag); n != 1 {
				return fmt.Sprintf("%s stands %d times, expected once", tag, n)
			}
			i := strings.Index(text, tag)
			if i < at {
				return tag + " stands too early"
			}
			if !around && tag[1] != '/' && strings.TrimSpace(text[at:i]) != "" {
				return fmt.Sprintf("%q stands before %s", reward.Clip(strings.TrimSpace(text[at:i]), 40), tag)
			}
			at = i + len(tag)
		}
	}
	if rest := strings.TrimSpace(text[at:]); !around && rest != "" {
		return fmt.Sprintf("%q stands behind the last tag", reward.Clip(rest, 40))
	}
	return ""
}

// onceShare is the share of the opening and closing tags that stand exactly once.
func onceShare(text string, tags []string) float64 {
	right := 0
	for _, name := range tags {
		right += int(boolScore(strings.Count(text, "<"+name+">") == 1) + boolScore(strings.Count(text, "</"+name+">") == 1))
	}
	return float64(right) / float64(max(2*len(tags), 1))
}

// spoken is the text to judge with the thinking before it, in its tags, where it is the model's last message.
func spoken(in reward.Input) string {
	for i := len(in.Messages) - 1; i >= in.NumPrompt; i-- {
		m := in.Messages[i]
		if m.Role != episode.RoleAssistant {
			continue
		}
		if m.ReasoningContent == nil || m.Text() != in.Text {
			break
		}
		thought := "<think>" + *m.ReasoningContent
		if m.Tagged == nil || m.Tagged.Closed {
			thought += "</think>"
		}
		return thought + in.Text
	}
	return in.Text
}
