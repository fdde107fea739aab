// Package sandbox runs programs that nobody trusts: what a model wrote, and what tests such code. It holds one interface and
// one back end a file or folder; none of them knows of episodes, tools or rewards.
//
// A sandbox promises what its Capabilities say and nothing else: a promise that is asked for and cannot be held makes Open
// fail (Spec.Require). Namespaces share the host's kernel: `ns` is meant for code that a model wrote, on a host that one can
// afford to lose. Open sandbox.go first.
package sandbox
