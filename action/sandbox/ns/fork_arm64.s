#include "textflag.h"

// func vforkClone3(args *cloneArgs, size uintptr) (pid, errno uintptr)
//
// Parent and child share this stack until the child has called execve. The return address stays in the link register.
TEXT ·vforkClone3(SB),NOSPLIT,$0-32
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8	// clone3
	SVC
	CMN	$4095, R0
	BCC	ok
	NEG	R0, R0
	MOVD	ZR, pid+16(FP)
	MOVD	R0, errno+24(FP)
	RET
ok:
	MOVD	R0, pid+16(FP)
	MOVD	ZR, errno+24(FP)
	RET
