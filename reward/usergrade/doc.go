// Package usergrade is the graders that users bring: a program (command), a web service (http) and a Python function (python). All three are
// handed one JSON object, the Case, and give one back, the answer: {score, raw, evidence, parts, turns} or {no_verdict}.
//
// A grader that fails, dies, is late or says what no grader may say leaves no verdict, never a 0. Programs are the user's own and trusted: they
// run on the host, each in a process group that is killed as a whole. Python functions run in a sandbox session.
//
// The package sends nothing anywhere but to what the settings name. Open answer.go first, then command.go, worker.go, http.go, python.go.
package usergrade
