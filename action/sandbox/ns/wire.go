package ns

import (
	"encoding/binary"
	"errors"
)

// codec writes the fields of a message or reads them: one list of fields serves both ways.
type codec struct {
	b       []byte
	reading bool
	err     error
}

var errShort = errors.New("message of a sandbox ends too early")

func (c *codec) num(v *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.fail()
		return
	}
	*v, c.b = n, c.b[size:]
}

func (c *codec) fail() { c.b, c.err = nil, errShort }

func (c *codec) i64(v *int64) {
	n := uint64(*v)
	c.num(&n)
	*v = int64(n)
}

func (c *codec) flag(v *bool) {
	var n uint64
	if *v {
		n = 1
	}
	c.num(&n)
	*v = n != 0
}

func (c *codec) str(v *string) {
	if b, ok := piece(c, *v); ok {
		*v = string(b)
	}
}

// bytes is str for contents: what is read is a part of the message, not a copy.
func (c *codec) bytes(v *[]byte) {
	if b, ok := piece(c, *v); ok {
		*v = b
	}
}

// piece writes a text after its length, or reads one; read says which.
func piece[T string | []byte](c *codec, v T) (b []byte, read bool) {
	n := uint64(len(v))
	c.num(&n)
	if !c.reading {
		c.b = append(c.b, v...)
		return nil, false
	}
	if n > uint64(len(c.b)) {
		c.fail()
		return nil, false
	}
	b, c.b = c.b[:n:n], c.b[n:]
	return b, true
}

func (c *codec) list(v *[]string) {
	n := uint64(len(*v))
	c.num(&n)
	if !c.reading {
		for i := range *v {
			c.str(&(*v)[i])
		}
		return
	}
	if n > uint64(len(c.b)) { // an entry has a byte at least
		c.fail()
		return
	}
	*v = nil
	for range n {
		var s string
		c.str(&s)
		*v = append(*v, s)
	}
}

// How a request travels: in the datagram after its first byte, or, where it is long, in a file in memory that comes along as the last
// descriptor.
const (
	frameInline = 0
	frameFile   = 1
	frameBytes  = 64 << 10
	mostFDs     = 8
)

// A reply is always one datagram. What a program decides in it, paths and the words of errors, is cut so that it fits.
const (
	replyBytes = 16 << 10
	pathBytes  = 4096 // PATH_MAX
)

// message is what goes over the socket.
type message interface{ fields(c *codec) }

func encode(m message) []byte {
	c := codec{}
	m.fields(&c)
	return c.b
}

func decode(b []byte, m message) error {
	c := codec{b: b, reading: true}
	m.fields(&c)
	return c.err
}

// op is what the host asks of a slot.
type op = uint64

const (
	opSetup     op = iota + 1
	opStart        // descriptors: stdin where there is one, stdout, stderr, the control descriptor, those of the lane
	opBegun        // whether Target has begun: answered as by it, and only while it runs
	opKill         // Target, and what it leaves behind
	opInterrupt    // Target's process group
	opUsage        // CPU time of all that ran since the last reset
	opPut          // descriptor: the files
	opGet          // descriptor: where the file goes
	opSnapshot     // descriptor: where the tar stream goes
	opRestore      // descriptor: the tar stream; after opReset
	opReset        // kill, and wipe
	opPause        // stop all; answered with how many there are besides programs
	opResume       // let them go on
	opDigest       // answered with the digest of the tar stream and its bytes
)

// request is one message from the host. Which fields mean something depends on Op.
type request struct {
	ID, Op, Target uint64

	Args, Env  []string
	Dir        string
	CPUSeconds uint64 // RLIMIT_CPU; 0 = none
	CPULimit   int64  // ns, of the program and all it started, for the init to see to where no control group counts it; 0 = none
	Stdin      bool   // a descriptor of it comes along; else it is empty
	Control    bool
	Background bool
	Lane       string // name of the program's control group; "" = there is none
	LaneFDs    uint64 // descriptors of the lane that come along: the first time it is used

	Path  string
	Limit int64

	Setup setup
}

func (r *request) fields(c *codec) {
	c.num(&r.ID)
	c.num(&r.Op)
	c.num(&r.Target)
	c.list(&r.Args)
	c.list(&r.Env)
	c.str(&r.Dir)
	c.num(&r.CPUSeconds)
	c.i64(&r.CPULimit)
	c.flag(&r.Stdin)
	c.flag(&r.Control)
	c.flag(&r.Background)
	c.str(&r.Lane)
	c.num(&r.LaneFDs)
	c.str(&r.Path)
	c.i64(&r.Limit)
	if r.Op == opSetup {
		r.Setup.fields(c)
	}
}

// setup is what a slot is to be.
type setup struct {
	Rootfs         string // "" = the host's /usr and what belongs to it
	RootfsTree     bool   // a descriptor of its tree comes along
	RootfsWritable bool
	Net            bool
	Memory         int64 // bytes of address space of one process; 0 = held by a control group
	Pids           int64
	Processes      int64 // RLIMIT_NPROC
	Disk           int64
	FileSize       int64
	OpenFiles      int64
	IntoCgroup     bool // the lane's descriptor is a cgroup v2 to clone into; else descriptors of `tasks` to write to
	OwnIdentity    bool // programs have an id of their own: the slot's init is 0, they are guest
	Launched       bool // another program has built the root
}

func (s *setup) fields(c *codec) {
	c.str(&s.Rootfs)
	c.flag(&s.RootfsTree)
	c.flag(&s.RootfsWritable)
	c.flag(&s.Net)
	for _, v := range []*int64{&s.Memory, &s.Pids, &s.Processes, &s.Disk, &s.FileSize, &s.OpenFiles} {
		c.i64(v)
	}
	c.flag(&s.IntoCgroup)
	c.flag(&s.OwnIdentity)
	c.flag(&s.Launched)
}

// what a reply says.
const (
	saidDone    = iota + 1 // the request is done
	saidStarted            // the program runs since At
	saidMissing            // there is no such program: Errno
	saidEnded              // it has ended, and what it left behind is gone
	saidFailed             // the request failed: Text, Errno
	saidFile               // a file or path is the cause: Fault, Path, Size, Limit
)

// reply is one message from a slot.
type reply struct {
	ID, What uint64
	Errno    uint64
	Text     string

	At    int64  // CLOCK_MONOTONIC in ns: when it started or ended
	Began int64  // when what ended was started
	Wait  uint64 // wait status
	CPU   int64  // ns, of the program and all that was reaped meanwhile
	Peak  int64  // bytes, of the largest process
	Left  uint64 // processes that were killed at its end
	Over  bool   // it was killed for its CPU time
	Fault uint64
	Path  string
	Size  int64
	Limit int64
	Mode  uint64
}

// clip cuts what would make a reply too long for who reads it.
func (r *reply) clip() {
	for _, s := range []*string{&r.Text, &r.Path} {
		if len(*s) > pathBytes {
			*s = (*s)[:pathBytes]
		}
	}
}

func (r *reply) fields(c *codec) {
	c.num(&r.ID)
	c.num(&r.What)
	c.num(&r.Errno)
	c.str(&r.Text)
	c.i64(&r.At)
	c.i64(&r.Began)
	c.num(&r.Wait)
	c.i64(&r.CPU)
	c.i64(&r.Peak)
	c.num(&r.Left)
	c.flag(&r.Over)
	c.num(&r.Fault)
	c.str(&r.Path)
	c.i64(&r.Size)
	c.i64(&r.Limit)
	c.num(&r.Mode)
}
