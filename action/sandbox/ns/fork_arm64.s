#include "textflag.h"

// func vfork(call, a1, a2, a3 uintptr) (pid, errno uintptr)
//
// call is clone or clone3. Parent and child share this stack until the child has called execve. The return address stays in the
// link register.
TEXT ·vfork(SB),NOSPLIT,$0-48
	MOVD	call+0(FP), R8
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	a3+24(FP), R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	SVC
	CMN	$4095, R0
	BCC	ok
	NEG	R0, R0
	MOVD	ZR, pid+32(FP)
	MOVD	R0, errno+40(FP)
	RET
ok:
	MOVD	R0, pid+32(FP)
	MOVD	ZR, errno+40(FP)
	RET
