// Package remote runs programs in sandboxes of other machines, over HTTP, in two dialects: SandboxFusion's run_code and SWE-ReX. What those hold a
// program to is theirs, and nothing of it is known here: no promise is enforced.
//
// Both run a small Python program of ours over there (aide.py), which runs one program under the limits that any process can set, reads its output to the end,
// tells exactly how it ended, and moves files. What the far side does wrong, or does not say, is an error of the executor and never a result
// of the program. There are no private descriptors and no output before the end, so no sessions. Open remote.go.
package remote
