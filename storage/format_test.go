package storage

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// docs/format.md is the contract: its table names exactly the columns of the schema, in order, with their type and nullability.
func TestFormatDocumentAgreesWithTheSchema(t *testing.T) {
	doc, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(doc), "| column | type | meaning |\n|---|---|---|\n")
	if !ok {
		t.Fatal("docs/format.md has no table of columns")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, name := range strings.Split(cells[1], ",") {
			documented = append(documented, strings.TrimSpace(name)+" "+strings.TrimSpace(cells[2]))
		}
	}
	var actual []string
	for _, f := range parquet.SchemaOf(Row{}).Fields() {
		actual = append(actual, f.Name()+" "+typeName(f))
	}
	if !slices.Equal(documented, actual) {
		for i := range min(len(documented), len(actual)) {
			if documented[i] != actual[i] {
				t.Fatalf("column %d: documented %q, in the file %q", i, documented[i], actual[i])
			}
		}
		t.Fatalf("%d columns documented, %d in the file", len(documented), len(actual))
	}
	for _, path := range parquet.SchemaOf(Row{}).Columns() { // names inside lists and structs
		for _, name := range path {
			if name != "list" && name != "element" && !regexp.MustCompile("`"+name+"`|(^|[|, ])"+name+"[ ,|]").MatchString(string(doc)) {
				t.Errorf("%v: docs/format.md does not name %q", path, name)
			}
		}
	}
}

// typeName is a column's type in the words of the document.
func typeName(f parquet.Node) string {
	mark := ""
	if f.Optional() {
		mark = "?"
	}
	if f.Leaf() {
		return leafName(f) + mark
	}
	if f.Type().String() == "LIST" {
		element := f.Fields()[0].Fields()[0]
		return "list" + mark + " of " + typeName(element)
	}
	return "struct" + mark
}

func leafName(f parquet.Node) string {
	logical := f.Type().String()
	for prefix, name := range map[string]string{"STRING": "string", "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)": "timestamp(µs, UTC)",
		"INT(8,": "int8", "INT(16,": "int16", "INT(32,": "int32", "INT(64,": "int64"} {
		if strings.HasPrefix(logical, prefix) {
			return name
		}
	}
	return map[parquet.Kind]string{parquet.Float: "float32", parquet.Double: "float64", parquet.Boolean: "bool", parquet.ByteArray: "binary"}[f.Type().Kind()]
}
