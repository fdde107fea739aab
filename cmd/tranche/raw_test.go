package main

import (
	"strings"
	"testing"

	"tranche/internal/mock"
	"tranche/storage"
)

// --keep-raw: what the server sent is in the row, by task, sample and turn; of a call that was tried again, the last answer.
func TestKeepRawOfARun(t *testing.T) {
	tool, text := mock.Tool("c1", "calculator", `{"expression":"1+1"}`).Body(), mock.Text("#### 2").Body()
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		switch {
		case userText(r) == "task 1":
			w.JSON(400, `{"error":{"message":"poison"}}`)
		case strings.HasSuffix(r.ID, "/0/1"):
			w.JSON(500, `{"error":{"message":"not yet"}}`)
		case strings.Contains(string(r.Body), `"role":"tool"`):
			w.JSON(200, text)
		default:
			w.JSON(200, tool)
		}
	}})
	play := func(more ...string) map[string]*storage.Row {
		dir := newRunDir(t)
		newShell(t).do(codePartial, append([]string{"run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--tools", "calculator", "-n", "2", "-o", dir, "-q"}, more...)...)
		return rowsIn(t, dir)
	}
	rows := play("--keep-raw")
	for sample := range 2 {
		good, bad := rows["t0/"+string(rune('0'+sample))], rows["t1/"+string(rune('0'+sample))]
		if len(good.Raw) != 2 || string(good.Raw[0].Body) != tool || string(good.Raw[1].Body) != text || good.Raw[1].Turn != 1 || good.Raw[0].Class != nil || good.Turns[0].Retries != 1 {
			t.Errorf("sample %d: %d raw answers, turns %+v", sample, len(good.Raw), good.Turns)
		}
		if len(bad.Raw) != 1 || bad.Raw[0].Status != 400 || or(bad.Raw[0].Class, "") != "bad_request" || !strings.Contains(string(bad.Raw[0].Body), "poison") || bad.Raw[0].Turn != 0 {
			t.Errorf("sample %d: %+v", sample, bad.Raw)
		}
	}
	for key, row := range play() {
		if row.Raw != nil {
			t.Errorf("%s keeps %d raw answers that nobody asked for", key, len(row.Raw))
		}
	}
}
