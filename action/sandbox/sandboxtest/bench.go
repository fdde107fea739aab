//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// way is one way of running a program that a benchmark compares.
type way struct {
	name string
	run  func(args ...string) error
}

// plainExec is what everything is held against.
func plainExec(args ...string) error { return exec.Command(args[0], args[1:]...).Run() }

// wrapped runs a program under another program, where that is installed.
func wrapped(wrapper ...string) func(args ...string) error {
	return func(args ...string) error { return plainExec(append(slices.Clone(wrapper), args...)...) }
}

// ways are plain exec, the back end and the programs of others that are installed.
func (s *stage) ways() []way {
	list := []way{{"plain exec", plainExec}, {s.caps.Backend, s.runFresh}}
	others := []struct {
		name, program string
		arguments     []string
	}{
		{"unshare", "unshare", []string{"--user", "--map-root-user", "--pid", "--fork", "--mount", "--net", "--ipc", "--uts"}},
		{"bubblewrap", "bwrap", []string{"--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv"}},
	}
	for _, o := range others {
		if path, err := exec.LookPath(o.program); err == nil {
			list = append(list, way{o.name, wrapped(append([]string{path}, o.arguments...)...)})
		}
	}
	return list
}

// runFresh runs a program in a clean sandbox of its own: opened, reset and given back each time.
func (s *stage) runFresh(args ...string) error {
	ctx := context.Background()
	box, err := s.executor.Open(ctx, s.spec)
	if err != nil {
		return err
	}
	defer box.Close()
	r, err := play(box, sandbox.Cmd{Args: args, Wall: patience})
	if err != nil {
		return err
	}
	if r.Status != sandbox.StatusOK {
		return fmt.Errorf("%v ended with %s", args, r.Status)
	}
	return nil
}

// Bench compares a back end with plain exec, in turn, so that a busy machine is as busy for both. It reports the median of one
// caller, ms, and runs a second with two.
func Bench(b *testing.B, open func() (sandbox.Executor, error)) {
	for _, program := range []struct {
		name string
		args []string
	}{{"true", []string{"/bin/true"}}, {"python", []string{python, "-I", "-S", "-c", "print(1)"}}} {
		b.Run(program.name, func(b *testing.B) {
			s := newStage(b, open)
			ways := s.ways()
			b.ResetTimer()
			took := make([][]time.Duration, len(ways))
			for range b.N {
				for i, w := range ways {
					began := time.Now()
					if err := w.run(program.args...); err != nil {
						b.Fatalf("%s: %v", w.name, err)
					}
					took[i] = append(took[i], time.Since(began))
				}
			}
			rates := ratesAtTwo(b, ways, program.args)
			for i, w := range ways {
				name := strings.ReplaceAll(w.name, " ", "-")
				b.ReportMetric(median(took[i]).Seconds()*1e3, name+"-p50-ms")
				b.ReportMetric(rates[i], name+"-runs/s")
			}
		})
	}
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// ratesAtTwo is how many runs a second two callers get through, of each way in turn, best of three.
func ratesAtTwo(b *testing.B, ways []way, args []string) []float64 {
	best := make([]float64, len(ways))
	for range 3 {
		for i, w := range ways {
			best[i] = max(best[i], rateAtTwo(b, w, args))
		}
	}
	return best
}

func rateAtTwo(b *testing.B, w way, args []string) float64 {
	var runs atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 2 {
		all.Go(func() {
			for time.Since(began) < 500*time.Millisecond {
				if err := w.run(args...); err != nil {
					b.Errorf("%s: %v", w.name, err)
					return
				}
				runs.Add(1)
			}
		})
	}
	all.Wait()
	return float64(runs.Load()) / time.Since(began).Seconds()
}

// BenchOpen holds many sandboxes open at once and reports what each takes: the memory of its processes, by their share, and what
// the machine has less, which counts the kernel's part too.
func BenchOpen(b *testing.B, sandboxes int, open func() (sandbox.Executor, error)) {
	s := newStage(b, open)
	for range b.N {
		free := available(b)
		began := time.Now()
		boxes := make([]sandbox.Sandbox, sandboxes)
		for i := range boxes {
			boxes[i] = s.open(b)
		}
		opened := time.Since(began)
		shares := 0
		for pid, p := range s.look(b).processes {
			if p.nested() {
				shares += share(pid)
			}
		}
		b.ReportMetric(float64(shares)/float64(sandboxes)/1024, "PSS-MiB/slot")
		b.ReportMetric(float64(free-available(b))/float64(sandboxes)/1024, "MiB/slot")
		b.ReportMetric(opened.Seconds()*1e3/float64(sandboxes), "open-ms/slot")
		for _, i := range []int{0, sandboxes / 2, sandboxes - 1} { // they can all be used
			if r, err := play(boxes[i], sandbox.Cmd{Args: []string{"/bin/true"}, Wall: patience}); err != nil || r.Status != sandbox.StatusOK {
				b.Errorf("sandbox %d: %s, %v", i, r.Status, err)
			}
		}
		for _, box := range boxes {
			s.close(b, box)
		}
	}
}

// share is the proportional set size of a process, KiB; 0 where it cannot be read.
func share(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	return kib(string(text), "Pss:")
}

func available(b *testing.B) int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	return kib(string(text), "MemAvailable:")
}

// kib reads the number of one line, such as "Pss:   123 kB".
func kib(text, key string) int {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			return number(fields, 1)
		}
	}
	return 0
}
