package bench

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// A measurement of a real server takes hours. RealFile keeps each run of it as soon as it has ended, so that it can be stopped, go on, and
// be shown without the server. JSON lines: what was measured, then a run a line; nothing is ever changed, a policy that is to be measured
// again gets a line that sets its runs aside.

// PoliciesVersion is raised when a baseline decides otherwise than before: its runs in older files do not compare any more. The
// scheduler's own policy is not meant: that one is measured again (RealFile.Again), and each run names the build that played it.
const PoliciesVersion = 1

// Measured is what all runs of one measurement have in common: runs that differ in any of it are not comparable.
type Measured struct {
	Workload     string         `json:"workload"`
	Seed         uint64         `json:"seed"`
	Episodes     int            `json:"episodes"`
	Calls        int            `json:"calls"`
	TimeScale    float64        `json:"time_scale"`
	Digest       string         `json:"workload_sha256"` // of every length and pause
	GaugeSeconds float64        `json:"gauge_every_s"`
	Server       ServerIdentity `json:"server"`
	Policies     int            `json:"policies_version"`
}

// ServerIdentity is what a server says of itself. Its address is none of it: it may be started again elsewhere.
type ServerIdentity struct {
	Kind          string `json:"kind"`
	Version       string `json:"version"`
	Model         string `json:"model"`
	ContextTokens int    `json:"context_tokens"`
	KVTokens      int    `json:"kv_tokens"`
	BlockTokens   int    `json:"block_tokens"`
	Sequences     int    `json:"sequences"` // at once; 0 = it does not tell
}

// IdentityOf puts together what a server says of itself.
func IdentityOf(kind, version, model string, c episode.Capacity) ServerIdentity {
	return ServerIdentity{kind, version, model, c.ContextTokens, c.KVTokens, c.BlockTokens, c.Sequences}
}

// String names the server for people.
func (s ServerIdentity) String() string {
	if s.Kind == "" {
		return "a real server"
	}
	return strings.Join(strings.Fields(s.Kind+" "+s.Version), " ") + ", model " + s.Model
}

// Digest is a fingerprint of a workload: of every length, pause and shared prefix.
func (w Workload) Digest() string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("a workload has no JSON: %v", err)) // it is numbers and names
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// differences names everything in which two measurements differ, "" for none.
func (m Measured) differences(is Measured) string {
	var all []string
	for _, x := range []struct {
		name    string
		was, is any
	}{
		{"workload", m.Workload, is.Workload}, {"seed", m.Seed, is.Seed}, {"episodes", m.Episodes, is.Episodes},
		{"time scale", m.TimeScale, is.TimeScale}, {"gauges every so many seconds", m.GaugeSeconds, is.GaugeSeconds},
		{"server", m.Server.Kind, is.Server.Kind}, {"server version", m.Server.Version, is.Server.Version}, {"model", m.Server.Model, is.Server.Model},
		{"context tokens", m.Server.ContextTokens, is.Server.ContextTokens}, {"KV tokens", m.Server.KVTokens, is.Server.KVTokens},
		{"block tokens", m.Server.BlockTokens, is.Server.BlockTokens}, {"sequences at once", m.Server.Sequences, is.Server.Sequences},
		{"version of the baselines", m.Policies, is.Policies},
	} {
		if x.was != x.is {
			all = append(all, fmt.Sprintf("%s: %v there, %v now", x.name, x.was, x.is))
		}
	}
	if len(all) == 0 && (m.Digest != is.Digest || m.Calls != is.Calls) {
		all = append(all, "this version draws the workload otherwise")
	}
	return strings.Join(all, "; ")
}

// RealRun is one policy that played the workload once to its end.
type RealRun struct {
	Policy string
	Repeat int       // from 1
	Ended  time.Time // UTC, to the second
	Build  string    // the program that played it
	Result Result    // what the server and the client counted; nothing by replica
}

// Errors of a file of runs.
var (
	ErrOtherMeasurement = errors.New("it is of another measurement")
	ErrNoRealFile       = errors.New("it is no file of a measurement on a real server")
	ErrRealFileHeld     = errors.New("another measurement is writing it")
	ErrRealFileDamaged  = errors.New("it is damaged")
	ErrIrregular        = errors.New("it is no regular file")
)

// mostRealFile is far more than any measurement writes (a run takes under 600 bytes): what is larger is not read.
const mostRealFile = 64 << 20

// realFormat names the format in a file's first line; another number is another format.
const realFormat = 1

// header is the first line.
type header struct {
	Format *int `json:"tranche_bench_real"`
	Measured
}

// entry is any other line: a run, or the word that earlier runs of a policy do not count any more.
type entry struct {
	Again string   `json:"again,omitempty"`
	Run   *runLine `json:"run,omitempty"`
}

// runLine is a RealRun in units that a person reads.
type runLine struct {
	Policy      string    `json:"policy"`
	Repeat      int       `json:"repeat"`
	Ended       time.Time `json:"ended"`
	Build       string    `json:"build"`
	Makespan    float64   `json:"makespan_s"`
	T90         float64   `json:"to_90_percent_s"`
	LatencyP50  float64   `json:"turn_latency_p50_s"`
	LatencyP99  float64   `json:"turn_latency_p99_s"`
	Completed   int       `json:"episodes_completed"`
	Calls       int       `json:"calls"`
	Attempts    int       `json:"attempts"`
	Generated   int64     `json:"generated_tokens"`
	Queried     int64     `json:"queried_prompt_tokens"`
	Hits        int64     `json:"hit_prompt_tokens"`
	Unique      int64     `json:"unique_prompt_tokens"`
	Preemptions int64     `json:"preemptions"`
}

func lineOf(r RealRun) *runLine {
	x := r.Result
	return &runLine{
		Policy: r.Policy, Repeat: r.Repeat, Ended: r.Ended, Build: r.Build, Makespan: x.Makespan.Seconds(), T90: x.T90.Seconds(),
		LatencyP50: x.LatencyP50.Seconds(), LatencyP99: x.LatencyP99.Seconds(), Completed: x.Completed, Calls: x.Calls, Attempts: x.Attempts,
		Generated: x.Generated, Queried: x.Queried, Hits: x.Hits, Unique: x.Unique, Preemptions: x.Preemptions,
	}
}

func (l *runLine) run() RealRun {
	d := func(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
	return RealRun{Policy: l.Policy, Repeat: l.Repeat, Ended: l.Ended, Build: l.Build, Result: Result{
		Makespan: d(l.Makespan), T90: d(l.T90), LatencyP50: d(l.LatencyP50), LatencyP99: d(l.LatencyP99), Completed: l.Completed, Calls: l.Calls,
		Attempts: l.Attempts, Useful: l.Generated, Generated: l.Generated, Queried: l.Queried, Hits: l.Hits, Computed: l.Queried - l.Hits,
		Unique: l.Unique, Preemptions: l.Preemptions,
	}}
}

// check says what cannot be in a run's line.
func (l *runLine) check() error {
	switch {
	case l.Policy == "" || l.Repeat < 1:
		return fmt.Errorf("a run of policy %q, repeat %d", l.Policy, l.Repeat)
	case !(l.Makespan > 0) || l.Makespan > math.MaxInt32 || l.Queried < l.Hits || l.Hits < 0:
		return fmt.Errorf("a run of %g seconds with %d of %d prompt tokens found", l.Makespan, l.Hits, l.Queried)
	}
	return nil
}

// parseRealFile reads a file of runs. whole is how many bytes of it are whole lines: what follows is a line that was being written when
// its writer died.
func parseRealFile(text []byte) (m Measured, runs []RealRun, whole int, err error) {
	whole = bytes.LastIndexByte(text, '\n') + 1
	lines := bytes.Split(bytes.TrimSuffix(text[:whole], []byte("\n")), []byte("\n"))
	var h header
	if json.Unmarshal(lines[0], &h) != nil || h.Format == nil {
		return Measured{}, nil, 0, ErrNoRealFile
	}
	if *h.Format != realFormat {
		return Measured{}, nil, 0, fmt.Errorf("%w: it has format %d, this version knows %d", ErrOtherMeasurement, *h.Format, realFormat)
	}
	for i, line := range lines[1:] {
		if runs, err = read(line, runs); err != nil {
			return Measured{}, nil, 0, fmt.Errorf("%w in line %d: %w", ErrRealFileDamaged, i+2, err)
		}
	}
	return h.Measured, runs, whole, nil
}

// read takes one line into account.
func read(line []byte, runs []RealRun) ([]RealRun, error) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	switch {
	case e.Run != nil && e.Again == "":
		if err := e.Run.check(); err != nil {
			return nil, err
		}
		if has(runs, e.Run.Policy, e.Run.Repeat) {
			return nil, fmt.Errorf("a second run of %s, repeat %d", e.Run.Policy, e.Run.Repeat)
		}
		return append(runs, e.Run.run()), nil
	case e.Run == nil && e.Again != "":
		return without(runs, e.Again), nil
	}
	return nil, errors.New("neither a run nor a policy to be measured again")
}

func has(runs []RealRun, policy string, repeat int) bool {
	return slices.ContainsFunc(runs, func(r RealRun) bool { return r.Policy == policy && r.Repeat == repeat })
}

func without(runs []RealRun, policy string) []RealRun {
	return slices.DeleteFunc(runs, func(r RealRun) bool { return r.Policy == policy })
}

// regular refuses what is there and is no regular file: reading a device or a pipe may never end, and opening one may wait for its other
// side.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	return err
}

// readWhole reads a file of runs, and no more of it than one can have.
func readWhole(f *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, mostRealFile+1))
	if err == nil && len(text) > mostRealFile {
		return nil, fmt.Errorf("%w: it is longer than %d MiB", ErrNoRealFile, mostRealFile>>20)
	}
	return text, err
}

// ReadRealFile reads the runs of a file, also while a measurement is writing it.
func ReadRealFile(path string) (Measured, []RealRun, error) {
	if err := regular(path); err != nil {
		return Measured{}, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return Measured{}, nil, err
	}
	defer f.Close()
	text, err := readWhole(f)
	if err != nil {
		return Measured{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	m, runs, _, err := parseRealFile(text)
	if err != nil {
		return Measured{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, runs, nil
}

// RealFile is a file of runs that is being written. One goroutine may use it.
type RealFile struct {
	f    *os.File
	runs []RealRun
}

// OpenRealFile begins a file, or goes on with one of the same measurement; ErrOtherMeasurement says in what another one differs.
func OpenRealFile(path string, m Measured) (*RealFile, error) {
	if err := regular(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r := &RealFile{f: f}
	if err := r.take(m); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return r, nil
}

// take locks the file and reads what is there; a new one gets its first line, a torn last line is cut off.
func (f *RealFile) take(m Measured) error {
	if err := holdFile(f.f); err != nil {
		return err
	}
	text, err := readWhole(f.f)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		format := realFormat
		return f.write(header{&format, m})
	}
	was, runs, whole, err := parseRealFile(text)
	if err != nil {
		return err
	}
	if d := was.differences(m); d != "" {
		return fmt.Errorf("%w: %s", ErrOtherMeasurement, d)
	}
	f.runs = runs
	return f.f.Truncate(int64(whole))
}

// write appends a line and waits until the disk has it.
func (f *RealFile) write(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := f.f.Write(append(text, '\n')); err != nil {
		return err
	}
	return f.f.Sync()
}

// Runs are those in the file, oldest first.
func (f *RealFile) Runs() []RealRun { return slices.Clone(f.runs) }

// Add keeps a run. It returns when the run is durable.
func (f *RealFile) Add(r RealRun) error {
	if err := f.write(entry{Run: lineOf(r)}); err != nil {
		return err
	}
	f.runs = append(f.runs, r)
	return nil
}

// Again sets the runs of a policy aside, for it to be measured anew, and says how many there were.
func (f *RealFile) Again(policy string) (set int, err error) {
	kept := without(slices.Clone(f.runs), policy)
	set = len(f.runs) - len(kept)
	if set == 0 {
		return 0, nil
	}
	f.runs = kept
	return set, f.write(entry{Again: policy})
}

// Close lets go of the file.
func (f *RealFile) Close() error { return f.f.Close() }

// byRepeat orders the runs of one policy.
func byRepeat(a, b RealRun) int { return cmp.Compare(a.Repeat, b.Repeat) }
