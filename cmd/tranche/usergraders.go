package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"tranche/action"
	"tranche/internal/redirect"
	"tranche/reward"
	"tranche/reward/judge"
	"tranche/reward/usergrade"
)

// userKinds are the graders that users bring, under the rules of users' own tools.
func (s *session) userKinds() []reward.Kind {
	return usergrade.Kinds(usergrade.Host{
		Environment: func(names []string) ([]string, func(string) string, error) {
			env, secrets, err := action.Environment(names)
			return env, secrets.Redact, err
		},
		CanStart: action.CanStart,
		Headers: func(given map[string]string) (func(*http.Request), func(string) string, error) {
			h, err := action.ReadHeaders(given)
			return h.Put, h.Secrets.Redact, err
		},
		Follow: redirect.SameHost,
		Boxes:  s.openGradingBoxes, Spec: s.gradingSpec(),
	})
}

// checkPythonGraders tries a sandbox for each function: what this host cannot do is known before the first episode.
func (s *session) checkPythonGraders(ctx context.Context) error {
	for i, r := range s.set.Reward {
		if r.Kind != usergrade.KindPython {
			continue
		}
		spec := s.gradingSpec()
		spec.Trusted = spec.Trusted || string(r.With["trusted"]) == "true"
		x, err := s.openGradingBoxes(ctx)
		if err == nil {
			box, oerr := x.Open(ctx, spec)
			if err = oerr; err == nil {
				err = box.Close()
			}
		}
		if err != nil {
			return withCode(codeUsage, fmt.Errorf("reward[%d]: sandbox: %w; `%s sandbox check` tells what this machine can hold, and trusted: true says that you vouch for the file", i, err, s.a.program))
		}
	}
	return nil
}

// pathOption is the option of a kind that names a file or folder; "" = there is none.
func pathOption(kind string) string {
	switch kind {
	case usergrade.KindCommand:
		return "dir"
	case usergrade.KindPython:
		return "file"
	case judge.KindName:
		return "template"
	}
	return ""
}

// path is that option's value; "" where it is not given or no text.
func (r RewardSpec) path() (p string) {
	if raw, ok := r.With[pathOption(r.Kind)]; ok {
		_ = json.Unmarshal(raw, &p) // the kind says what is wrong
	}
	return p
}

// withPath is the spec with another value there.
func (r RewardSpec) withPath(p string) RewardSpec {
	r.With = maps.Clone(r.With)
	if r.With == nil {
		r.With = Object{}
	}
	r.With[pathOption(r.Kind)] = encode(p)
	return r
}

// from is the list with its paths taken as relative to a folder, which is where programs run.
func (l RewardSpecs) from(dir string) RewardSpecs {
	l = slices.Clone(l)
	for i, r := range l {
		if p := r.path(); pathOption(r.Kind) != "" && !filepath.IsAbs(p) && (p != "" || r.Kind == usergrade.KindCommand) {
			l[i] = r.withPath(filepath.Join(dir, p))
		}
	}
	return l
}

// decides is the list as a run's identity has it: files by what is in them, not where they lie, servers by their models.
func (l RewardSpecs) decides() RewardSpecs {
	l = slices.Clone(l)
	for i, r := range l {
		switch r.Kind {
		case usergrade.KindCommand:
			l[i] = r.without("dir", "timeout")
		case usergrade.KindPython:
			l[i] = r.withContent().without("timeout")
		case judge.KindName:
			models := judgeModels(judgeEndpoints(r))
			l[i] = r.withContent().without("timeout", "probe", "endpoint")
			l[i].With["endpoint"] = models
		}
	}
	return l
}

func (r RewardSpec) without(keys ...string) RewardSpec {
	r.With = maps.Clone(r.With)
	if r.With == nil {
		r.With = Object{}
	}
	for _, k := range keys {
		delete(r.With, k)
	}
	return r
}

// withContent names a file by its content. One that cannot be read stays as it is: the kind refuses it.
func (r RewardSpec) withContent() RewardSpec {
	p := r.path()
	if p == "" {
		return r
	}
	raw, err := os.ReadFile(p)
	if err != nil {
		return r
	}
	sum := sha256.Sum256(raw)
	return r.withPath("sha256:" + hex.EncodeToString(sum[:]))
}

// identifyGraders puts that into a run's identity where it says something else than the list itself.
func identifyGraders(s *Settings, id map[string]string) {
	if !slices.ContainsFunc(s.Reward, func(r RewardSpec) bool { return pathOption(r.Kind) != "" }) {
		return
	}
	id["reward"] = string(encode(s.Reward.decides()))
}
