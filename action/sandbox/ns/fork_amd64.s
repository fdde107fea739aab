#include "textflag.h"

// func vfork(call, a1, a2, a3 uintptr) (pid, errno uintptr)
//
// call is clone or clone3. Parent and child share this stack until the child has called execve. The return address is kept in a
// register, because the child overwrites its place.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	call+0(FP), AX
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	a3+24(FP), DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	NEGQ	AX
	MOVQ	$0, pid+32(FP)
	MOVQ	AX, errno+40(FP)
	RET
ok:
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET
