package inference

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The null server answers at once and does nothing else, so that what is measured is the client. It is a process of its own: the
// test binary itself, under nullServerEnv.

const nullServerEnv = "TRANCHE_NULL_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(nullServerEnv) != "" {
		os.Exit(nullServer(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// nullShape is an answer of so many bytes of JSON, whole or as the events of a stream.
type nullShape struct {
	name   string
	bytes  int
	stream bool
}

func nullShapes() []nullShape {
	return []nullShape{{"2KB", 2 << 10, false}, {"64KB", 64 << 10, false}, {"2KB-stream", 2 << 10, true}, {"64KB-stream", 64 << 10, true}}
}

// prose is text as models write it: a line end every eighty letters, here and there a quotation or a letter beyond ASCII.
func prose(n int) string {
	const text = "The quick brown fox jumps over the lazy dog, and then it rests – for a short while.\n" +
		"It had seen the dog before, more than once, and thought: \"He is never in a hurry.\"\n" +
		"So nothing of it came as a surprise to either of them, nor to those who watched.\n"
	return strings.ToValidUTF8(strings.Repeat(text, n/len(text)+1)[:n], "")
}

// answer is the whole response.
func (s nullShape) answer() []byte {
	if !s.stream {
		frame := func(text string) string {
			quoted, _ := json.Marshal(text)
			return `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"null","choices":[{"index":0,"message":{"role":"assistant","content":` + string(quoted) +
				`,"refusal":null,"tool_calls":[],"reasoning_content":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":null,` +
				`"usage":{"prompt_tokens":9,"total_tokens":500,"completion_tokens":491,"prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null}`
		}
		n := s.bytes - len(frame(""))
		for len(frame(prose(n))) > s.bytes { // escapes lengthen it
			n -= max((len(frame(prose(n)))-s.bytes)/2, 1)
		}
		body := frame(prose(n))
		return []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	out := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
	sent := 0
	event := func(data string) {
		data = "data: " + data + "\n\n"
		sent += len(data)
		out = fmt.Appendf(out, "%x\r\n%s\r\n", len(data), data) // a chunk an event, as servers write them
	}
	delta := func(d, finish string) {
		event(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"null","choices":[{"index":0,"delta":` + d + `,"logprobs":null,"finish_reason":` + finish + `,"token_ids":null}]}`)
	}
	delta(`{"role":"assistant","content":""}`, "null")
	words := strings.SplitAfter(prose(4096), " ")
	for i := 0; sent < s.bytes-450; i++ {
		word, _ := json.Marshal(words[i%len(words)])
		delta(`{"content":`+string(word)+`}`, "null")
	}
	delta(`{}`, `"stop"`)
	event("[DONE]")
	return append(out, "0\r\n\r\n"...)
}

// nullServer listens, tells its address and serves until its input ends.
func nullServer(until io.Reader, tell io.Writer) int {
	runtime.GOMAXPROCS(1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	models := `{"object":"list","data":[{"id":"null","object":"model","owned_by":"null"}]}`
	answers := map[string][]byte{}
	for _, s := range nullShapes() {
		answers["/"+s.name+"/v1/chat/completions"] = s.answer()
		answers["/"+s.name+"/v1/models"] = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(models), models)
	}
	fmt.Fprintln(tell, l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveNull(c, answers)
		}
	}()
	_, _ = io.Copy(io.Discard, until)
	return 0
}

func serveNull(c net.Conn, answers map[string][]byte) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		first, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		parts := bytes.Fields(first)
		if len(parts) < 2 {
			return
		}
		answer := answers[string(parts[1])]
		if answer == nil {
			answer = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		}
		length := 0
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) <= 2 {
				break
			}
			if name, value, _ := bytes.Cut(line, []byte(":")); len(name) == 14 && textproto.CanonicalMIMEHeaderKey(string(name)) == "Content-Length" {
				if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
					return
				}
			}
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// startNull starts the null server and returns its address.
func startNull(tb testing.TB) string {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), nullServerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the null server: %v", err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// used is the CPU time of this process so far.
func used(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cost is what some requests took.
type cost struct{ wall, cpu time.Duration }

func measured(tb testing.TB, workers, n int, work func()) cost {
	before := used(tb)
	wall := burst(workers, n, work)
	return cost{wall, used(tb) - before}
}

// nullConcurrency is how many requests are in flight.
const nullConcurrency = 64

// TestNullServer proves that the benchmark's answers are read as what they are: all of the text, and its end.
func TestNullServer(t *testing.T) {
	addr := startNull(t)
	for _, s := range nullShapes() {
		e := openNull(t, addr, s)
		r, err := e.Generate(t.Context(), call("x"), 1, 64)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		n, share := len(r.Message.Text()), 0.9
		if s.stream {
			share = 0.02 // an event holds a word
		}
		if r.Finish != "stop" || float64(n) < share*float64(s.bytes)-700 || n < 25 || !strings.HasPrefix(r.Message.Text(), "The quick brown fox") {
			t.Errorf("%s: %d bytes, finish %q", s.name, n, r.Finish)
		}
		raw := newNullRaw(e)
		if least := raw.decode(t, s.stream); least != r.Message.Text() {
			t.Errorf("%s: %d bytes, encoding/json reads %d", s.name, n, len(least))
		}
		raw.http.CloseIdleConnections()
		if got := len(s.answer()); got < s.bytes*9/10 || got > s.bytes*5/4 {
			t.Errorf("%s: an answer of %d bytes", s.name, got)
		}
	}
}

func openNull(tb testing.TB, addr string, s nullShape) *Endpoint {
	tb.Helper()
	e, err := Open(context.Background(), Config{BaseURL: "http://" + addr + "/" + s.name + "/v1", Concurrency: nullConcurrency, Stream: s.stream})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	return e
}

// BenchmarkNull compares Generate with bare net/http, which reads an answer and throws it away, on the same server with a pool of
// the same size, both on one core, in turns. Judge by the ratios: x-raw is requests per second over those of net/http, x-raw-cpu CPU time a
// request under that of net/http. kept-x-raw-cpu is what that ratio is for net/http itself where it does not throw the answer away but makes a string
// of it, unread, and decoded-x-raw-cpu where encoding/json reads what a row needs of it; x-decoded-cpu is CPU time a request under that of the latter.
// Where scripts/nullclient.sh has installed the openai package and TRANCHE_NULL_PYTHON names its python, x-httpx and x-aiohttp are requests per second
// over those of AsyncOpenAI.
//
//	go test ./inference -run '^$' -bench Null -benchtime 20000x
func BenchmarkNull(b *testing.B) {
	addr := startNull(b)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, s := range nullShapes() {
		b.Run(s.name, func(b *testing.B) {
			e := openNull(b, addr, s)
			raw := newNullRaw(e)
			defer raw.http.CloseIdleConnections()
			ours := func() {
				if _, err := e.Generate(b.Context(), call("x"), 1, 64); err != nil {
					b.Error(err)
				}
			}
			const turns = 10
			n := max(b.N/turns, nullConcurrency)
			var rate, cpu, kept, decoded, under, perSecond, micros []float64
			for range turns {
				mine, bare := measured(b, nullConcurrency, n, ours), measured(b, nullConcurrency, n, func() { raw.post(b) })
				keeping := measured(b, nullConcurrency, n, func() { raw.keep(b) })
				decoding := measured(b, nullConcurrency, n, func() { raw.decode(b, s.stream) })
				kept = append(kept, bare.cpu.Seconds()/keeping.cpu.Seconds())
				decoded = append(decoded, bare.cpu.Seconds()/decoding.cpu.Seconds())
				under = append(under, decoding.cpu.Seconds()/mine.cpu.Seconds())
				rate = append(rate, bare.wall.Seconds()/mine.wall.Seconds())
				cpu = append(cpu, bare.cpu.Seconds()/mine.cpu.Seconds())
				perSecond = append(perSecond, float64(n)/mine.wall.Seconds())
				micros = append(micros, mine.cpu.Seconds()*1e6/float64(n))
			}
			b.ReportMetric(0, "ns/op") // it holds both sides: of no use
			b.ReportMetric(median(perSecond), "req/s")
			b.ReportMetric(median(micros), "cpu-µs/req")
			b.ReportMetric(median(rate), "x-raw")
			b.ReportMetric(median(cpu), "x-raw-cpu")
			b.ReportMetric(median(kept), "kept-x-raw-cpu")
			b.ReportMetric(median(decoded), "decoded-x-raw-cpu")
			b.ReportMetric(median(under), "x-decoded-cpu")
			for _, backend := range []string{"httpx", "aiohttp"} {
				if theirs := nullPython(b, backend, addr, s); theirs > 0 {
					b.ReportMetric(median(perSecond)/theirs, "x-"+backend)
				}
			}
		})
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return (list[len(list)/2] + list[(len(list)-1)/2]) / 2
}

// newNullRaw is bare net/http with a pool of the size that an endpoint has, and the body that it sends.
func newNullRaw(e *Endpoint) *rawClient {
	body, err := e.Render(call("x"), 64)
	if err != nil {
		panic(err) // a call that every test sends
	}
	t := &http.Transport{MaxIdleConnsPerHost: maxConns(nullConcurrency), MaxConnsPerHost: maxConns(nullConcurrency), DisableCompression: true}
	return &rawClient{http: http.Client{Transport: t}, to: e.address.api + "/chat/completions", body: body}
}

// nullPython is how many requests a second AsyncOpenAI makes; 0 = it is not there to be asked.
func nullPython(b *testing.B, backend, addr string, s nullShape) float64 {
	python := os.Getenv("TRANCHE_NULL_PYTHON")
	if python == "" {
		return 0
	}
	args := []string{"../scripts/nullclient/client.py", backend, "http://" + addr + "/" + s.name + "/v1", strconv.Itoa(nullConcurrency), strconv.FormatBool(s.stream)}
	var diag bytes.Buffer
	cmd := exec.Command(python, args...)
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, diag.String())
	}
	var facts struct {
		Rate float64 `json:"requests_per_s"`
	}
	if err := json.Unmarshal(out, &facts); err != nil || facts.Rate <= 0 {
		b.Fatalf("%s printed %q (%v)", strings.Join(args, " "), out, err)
	}
	return facts.Rate
}
