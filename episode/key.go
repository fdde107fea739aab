package episode

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
)

// ID derives an id from its parts: 128 bits of SHA-256 in hex. Equal parts give equal ids in every process and run, so a
// resumed run computes the same keys.
func ID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		writePart(h, p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// GroupID is the id of the group of one draw of a task.
func GroupID(runID, taskID string, round int) string { return ID(runID, taskID, strconv.Itoa(round)) }

func writePart(h hash.Hash, p string) {
	var n [8]byte // length first: ("ab","c") and ("a","bc") must differ
	binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
	h.Write(n[:])
	h.Write([]byte(p))
}
