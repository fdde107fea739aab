// The first process of a container, and nothing else.
package main

import "tranche/action/sandbox/ns"

func main() { ns.Init() }
