// What gates do.
#pragma once
#include "device.h"

// act(gate) * up: act is 0 for SiLU, 1 for GELU by tanh.
DEVICE float gated(float x, float up, int act) {
	// Both are x * sigmoid(z): tanh(y) is 2 sigmoid(2y) - 1.
	const float z = act == 0 ? x : 1.5957691216057308f * (x + 0.044715f * x * x * x);
	return x / (1 + expf(-z)) * up;
}
