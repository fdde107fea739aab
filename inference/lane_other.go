//go:build !unix

package inference

// isQuiet would tell whether the server has closed an idle connection; here that is found out by using it.
func (c *lane) isQuiet() bool { return true }
