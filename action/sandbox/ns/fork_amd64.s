#include "textflag.h"

// func vforkClone3(args *cloneArgs, size uintptr) (pid, errno uintptr)
//
// Parent and child share this stack until the child has called execve. The return address is kept in a register, because the
// child overwrites its place.
TEXT ·vforkClone3(SB),NOSPLIT|NOFRAME,$0-32
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX	// clone3
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	NEGQ	AX
	MOVQ	$0, pid+16(FP)
	MOVQ	AX, errno+24(FP)
	RET
ok:
	MOVQ	AX, pid+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
