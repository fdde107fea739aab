//go:build unix

package feed

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// BenchmarkFeed: 512 rows of about 3,600 tokens from their parts to record batches at a client over loopback, by Go and by pyarrow, and beside
// it pyarrow reading the same parts, all on one thread. Seconds are of processors: of this process, which serves, and of pyarrow's behind its imports.
func BenchmarkFeed(b *testing.B) {
	dir := b.TempDir()
	const rows, tokens = 512, 2400
	aRun(b, dir, 0, rows/8, 8, tokens)
	s := serve(b, Config{Dir: dir, Poll: time.Minute})
	for _, query := range []string{"", "zstd=1", "columns=token_ids,loss_mask,logprobs,reward"} {
		b.Run("go/"+query, func(b *testing.B) {
			var n, bytes float64
			began := processorSeconds(b)
			for b.Loop() {
				resp := s.get("/v1/rows?" + query)
				counted := &counter{r: resp.Body}
				in, err := ipc.NewReader(counted)
				if err != nil {
					b.Fatal(err)
				}
				for in.Next() {
					n += float64(in.RecordBatch().NumRows())
				}
				if in.Err() != nil {
					b.Fatal(in.Err())
				}
				in.Release()
				resp.Body.Close()
				bytes += float64(counted.n)
			}
			report(b, "both", n, bytes, processorSeconds(b)-began)
		})
	}
	for name, program := range map[string]string{
		"feed":  "t = pyarrow.ipc.open_stream(urllib.request.urlopen(sys.argv[1] + '/v1/rows')).read_all()",
		"parts": "t = pyarrow.concat_tables([pq.read_table(p, use_threads=False) for p in sorted(glob.glob(sys.argv[2] + '/parts/*.parquet'))])",
	} {
		b.Run("pyarrow/"+name, func(b *testing.B) {
			var n, bytes, seconds float64
			began := processorSeconds(b)
			for b.Loop() {
				got := timed(b, program, s.url, dir)
				n, bytes, seconds = n+got[0], bytes+got[1], seconds+got[2]
			}
			if name == "feed" {
				report(b, "server", n, bytes, processorSeconds(b)-began)
			}
			report(b, "pyarrow", n, bytes, seconds)
		})
	}
}

func report(b *testing.B, who string, rows, bytes, seconds float64) {
	b.ReportMetric(rows/seconds, who+"-rows/s")
	b.ReportMetric(bytes/1e6/seconds, who+"-MB/s")
}

// processorSeconds is what this process has used of processors.
func processorSeconds(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// timed runs a line of Python and returns rows, bytes in memory, and processor seconds.
func timed(b *testing.B, program string, args ...string) (got [3]float64) {
	b.Helper()
	interpreter := os.Getenv("TRANCHE_PYTHON")
	if interpreter == "" {
		home, _ := os.UserHomeDir()
		interpreter = filepath.Join(home, ".cache", "tranche-engines", "py", "bin", "python")
	}
	if err := exec.Command(interpreter, "-c", "import pyarrow").Run(); err != nil {
		b.Skipf("%s cannot import pyarrow; set TRANCHE_PYTHON to one that can", interpreter)
	}
	program = "import glob, sys, time, urllib.request, pyarrow, pyarrow.ipc, pyarrow.parquet as pq\nbegan = time.process_time()\n" + program + "\nprint(t.num_rows, t.nbytes, time.process_time() - began)"
	out, err := exec.Command(interpreter, append([]string{"-c", program}, args...)...).Output()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Sscan(string(out), &got[0], &got[1], &got[2]); err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return got
}
