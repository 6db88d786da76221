#include "textflag.h"

// func prefetch(lines *[batchSize]*bucket, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVD lines+0(FP), R0
	MOVD n+8(FP), R1
	CMP  $0, R1
	BLE  done

next:
	MOVD.P 8(R0), R2
	PRFM   (R2), PLDL1KEEP
	SUBS   $1, R1
	BNE    next

done:
	RET
