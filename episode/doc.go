// Package episode holds the nouns that every other package speaks in (task, episode, turn, call, reply, action,
// observation, reward, fault) and the one-method seams between the stages (seams.go).
//
// It imports the standard library only and nothing of this module; it does no I/O, starts no goroutine and knows no
// server, no file format and no policy. Open episode.go first: an Episode is the whole state of one trajectory, and its
// methods are the only way that state changes.
package episode
