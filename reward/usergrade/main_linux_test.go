package usergrade

import (
	"testing"

	"go.uber.org/goleak"

	"tranche/action/sandbox/plain"
)

func TestMain(m *testing.M) {
	plain.Init()
	goleak.VerifyTestMain(m)
}
