// Package verify proves that a run directory holds what docs/format.md promises: the files that were published, each key once, groups whole,
// token sequences that are sound, text that is text, rewards and sums that follow from what they are made of.
//
// It changes nothing, repairs nothing and takes no lock: a run may be written meanwhile. Every check has a name, a class that the exit status
// follows, and a sentence that says what a finding means (catalogue.go). A check of one row is a pure function of the row (tokens.go,
// talk.go, verdict.go, sums.go, text.go); what needs many rows is in keys.go, what needs the disk in files.go. Open verify.go first.
package verify
