// Reads memory as fast as a device can, and keeps of it what shows that it was read.

// Each thread adds up, from its own place on, every 16 bytes that the grid is wide; sums
// has a word for each thread. n is a number of 16-byte pieces.
extern "C" __global__ void __launch_bounds__(256) read_all(unsigned *sums, const uint4 *from, long long n) {
	const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
	unsigned sum = 0;
#pragma unroll 8
	for (long long i = thread; i < n; i += threads) {
		uint4 v;
		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + i));
		sum += v.x + v.y + v.z + v.w;
	}
	sums[thread] = sum;
}
