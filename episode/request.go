package episode

// Request is a model call whose body is not ours: a line of a batch file. It goes out as it is, and the answer comes back as it
// came. The call's Messages and Tools are then only what its length is told by.
type Request struct {
	Route string // behind the version of the API, such as /embeddings
	Body  []byte // one JSON object
	// OwnModel puts the endpoint's model into the body, in the place of the one it names or as a first field. Nothing else of the
	// body changes.
	OwnModel bool
	Most     int // tokens the body lets all its answers have together; 0 = it does not say
}

// Answer is what a server said to a Request.
type Answer struct {
	Status int    // HTTP
	ID     string // the server's own X-Request-Id, else the one that was sent
	Body   []byte // as it came
}
