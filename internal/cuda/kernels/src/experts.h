// Which experts compute which tokens. A pair is a token with one of its experts: pair
// token * active + rank, the best expert having rank 0.
#pragma once

const int MAX_EXPERTS = 4096;

// Pairs of one expert that are computed together: those from first to before past in the
// order of the plan.
struct Pairs {
	int expert, first, past, unused;
};
