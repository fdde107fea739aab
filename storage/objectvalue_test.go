package storage

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// everyKind is a column for each kind of value that JSON has no form for, or that only the file's schema tells from another.
type everyKind struct {
	Name   string            `parquet:"name"`
	Enum   string            `parquet:"enum,enum"`
	JSON   string            `parquet:"json,json"`
	Bytes  []byte            `parquet:"bytes"`
	UUID   [16]byte          `parquet:"uuid,uuid"`
	Small  int32             `parquet:"small,decimal(2:9)"`
	Large  int64             `parquet:"large,decimal(4:18)"`
	At     time.Time         `parquet:"at,timestamp(microsecond)"`
	Day    int32             `parquet:"day,date"`
	Single float32           `parquet:"single"`
	Double *float64          `parquet:"double,optional"`
	Map    map[string]int64  `parquet:"map"`
	Nested []nestedKind      `parquet:"nested,list"`
	Unsure *nestedKind       `parquet:"unsure,optional"`
	Tagged map[string]string `parquet:"tagged"`
}

type nestedKind struct {
	Z    int8   `parquet:"z"`
	A    string `parquet:"a,json"`
	Cost int32  `parquet:"cost,decimal(1:9)"`
}

func writeKinds(t *testing.T, rows ...everyKind) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kinds.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := parquet.NewGenericWriter[everyKind](f)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func objectsOf(t *testing.T, path string) (got []string) {
	t.Helper()
	for o, err := range ReadObjects(path) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(o))
	}
	return got
}

func TestReadObjectsOfEveryKind(t *testing.T) {
	nan, tenth := math.NaN(), 0.1
	path := writeKinds(t,
		everyKind{
			Name: "é\"\\\n<&>\u2028", Enum: "red", JSON: `{"n": 12345678901234567890, "a": [null, 1.0]}`, Bytes: []byte{0, 255}, UUID: [16]byte{15: 5},
			Small: -1250, Large: 7, At: time.Date(2026, 11, 30, 22, 5, 1, 234567000, time.UTC), Day: 20422, Single: 0.1, Double: &nan,
			Map: map[string]int64{"k": math.MinInt64}, Nested: []nestedKind{{-128, `{"x":1}`, 15}, {1, `broken {`, -5}},
			Unsure: &nestedKind{Z: 1, A: "[]"}, Tagged: map[string]string{},
		},
		everyKind{Name: "bad \xff\xfe text", JSON: "", Single: float32(math.Inf(-1)), Double: &tenth, At: time.Unix(0, 0), Day: -1},
	)
	want := []string{
		`{"name":"é\"\\\u000a<&>` + "\u2028" + `","enum":"red","json":{"n": 12345678901234567890, "a": [null, 1.0]},"bytes":"AP8=","uuid":"00000000-0000-0000-0000-000000000005",` +
			`"small":"-12.50","large":"0.0007","at":"2026-11-30T22:05:01.234567Z","day":"2025-11-30","single":0.1,"double":"NaN",` +
			`"map":[{"key":"k","value":-9223372036854775808}],"nested":[{"z":-128,"a":{"x":1},"cost":"1.5"},{"z":1,"a":"broken {","cost":"-0.5"}],` +
			`"unsure":{"z":1,"a":[],"cost":"0.0"},"tagged":[]}`,
		"{\"name\":\"bad \xff\xfe text\"" + `,"enum":"","json":"","bytes":"","uuid":"00000000-0000-0000-0000-000000000000",` +
			`"small":"0.00","large":"0.0000","at":"1970-01-01T00:00:00Z","day":"1969-12-31","single":"-Inf","double":0.1,` +
			`"map":[],"nested":[],"unsure":null,"tagged":[]}`,
	}
	got := objectsOf(t, path)
	if len(got) != len(want) {
		t.Fatalf("%d rows", len(got))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}
