package main

import (
	"errors"
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
	dir := ""
	play := func(more ...string) map[string]*storage.Row {
		dir = newRunDir(t)
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
	good, bad := rows["t0/0"].EpisodeID, rows["t1/0"].EpisodeID
	for args, want := range map[[4]string]string{ // byte for byte, and nothing else on stdout
		{"--episode", good, "--raw", "1"}: tool, {"--episode", good, "--raw", "2"}: text, {"--episode", bad, "--raw", "1"}: string(rows["t1/0"].Raw[0].Body),
	} {
		v := newShell(t)
		v.do(codeOK, append([]string{"view", dir}, args[:]...)...)
		if v.out.String() != want {
			t.Errorf("%v: %q, want %q", args, v.out.String(), want)
		}
	}
	v := newShell(t)
	v.do(codeUsage, "view", dir, "--episode", good, "--raw", "3")
	if !strings.Contains(v.err.String(), "turn 3 has no raw answer; the last turn with one is 2") {
		t.Errorf("said %s", v.err.String())
	}
	for key, row := range play() {
		if row.Raw != nil {
			t.Errorf("%s keeps %d raw answers that nobody asked for", key, len(row.Raw))
		}
	}
	v = newShell(t)
	v.do(codeUsage, "view", dir, "--episode", good, "--raw", "1")
	if !strings.Contains(v.err.String(), "a run keeps them with --keep-raw") || v.out.Len() > 0 {
		t.Errorf("said %s", v.err.String())
	}
}

// What is missing of a kept answer is said, and why.
func TestRawAnswersThatAreNotWhole(t *testing.T) {
	row := &storage.Row{EpisodeID: "e", Raw: []storage.RawAnswer{
		{Turn: 0, Status: 200, Bytes: 5, Body: []byte("01")}, {Turn: 1, Status: 200, Bytes: 7}, {Turn: 2, Status: 200},
	}}
	for turn, want := range map[int]struct{ body, missing, refused string }{
		1: {"01", "; the last 3 of them were not kept", ""},
		2: {"", "", "the answer of turn 2, 7 bytes, came when the 16 MiB"},
		3: {"", "", ""},
		4: {"", "", "turn 4 has no raw answer; the last turn with one is 3"},
	} {
		list, err := rawAnswers(row, turn)
		switch {
		case want.refused != "":
			if !errors.Is(err, errNotKept) || !strings.Contains(err.Error(), want.refused) {
				t.Errorf("turn %d: %v", turn, err)
			}
		case err != nil || len(list) != 1 || string(list[0].Body) != want.body || missing(list[0]) != want.missing:
			t.Errorf("turn %d: %v (%v)", turn, list, err)
		}
	}
}
