// Package keeper is what back ends share whose programs are processes of this host, in folders of this host: `plain`, which confines
// nothing, and `landlock`. It knows how to keep a program and all that it starts, not how to confine it.
//
// Each program has a keeper, this same binary started again (Init), to which everything that the program starts falls when its
// parents die: so its end can be told from the end of what it started, and all of it can be killed, also when the host process is
// killed. A back end that confines has the binary started once more between keeper and program: that step confines itself and becomes the
// program (Kind.Last). Open box.go, then process.go and keeper.go.
package keeper
