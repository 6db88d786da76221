// The machine behind shim.h, and the call that launches a kernel on it.
#include "shim.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <utility>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

Index threadIdx, blockIdx, blockDim, gridDim;

unsigned shared_address(const void *p);
void *shared_pointer(unsigned address, int bytes);

extern "C" unsigned char __start_shim_shared[], __stop_shim_shared[];
__shared__ __attribute__((used)) unsigned char at_least_one[16]; // so that the section is there

namespace shim {

unsigned char *dynamic_shared;

// What goes on beside the threads of a block, in async.cc.
void async_begin(int threads);
bool async_step(bool at_once);
void async_block_barrier();
std::string async_end();
std::string async_waiting();

namespace {

const size_t kStack = 64 << 10;
const size_t kMaxShared = 227 << 10; // of a block, on compute capability 9.0
const int kPoison = 0xff;            // NaN in every type of float
const unsigned kWindow = 48;         // address of the shared memory of a launch: aligned as little as may be

struct Copy {
	void *to;
	const void *from;
	int bytes, room;
};

enum State { ready, at_barrier, in_warp, done };

struct Fiber {
#if defined(__x86_64__)
	void *sp;
#else
	ucontext_t context;
#endif
	Index index;
	State state;
	std::vector<Copy> open;                // copies not yet in a group
	std::deque<std::vector<Copy>> groups; // oldest first
};

struct Warp {
	void *operands[32];
	unsigned mask, arrived;
	void (*work)(void **);
	const char *what;
};

struct Machine {
	std::vector<Fiber> fibers;
	std::vector<Warp> warps;
	std::vector<int> runnable;
	int current, live, waiting;
	uint64_t random;
	void (*body)(void *);
	void *argument;
	unsigned char *stacks = nullptr;
	size_t stack_count = 0;
#if defined(__x86_64__)
	void *scheduler;
#else
	ucontext_t scheduler;
#endif
	size_t shared; // dynamic, of the launch
	std::string error;
} m;

uint64_t next_random() {
	m.random ^= m.random << 13, m.random ^= m.random >> 7, m.random ^= m.random << 17;
	return m.random;
}

void fiber_main();

#if defined(__x86_64__)
// Saves the registers that a function must keep, and goes on with another stack.
asm(R"(
.text
.p2align 4
shim_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
)");
extern "C" void shim_switch(void **save, void *to) __asm__("shim_switch");

void enter(Fiber &f) { shim_switch(&m.scheduler, f.sp); }
void leave(Fiber &f) { shim_switch(&f.sp, m.scheduler); }
void prepare(Fiber &f, unsigned char *stack) {
	void **sp = (void **)(stack + kStack);
	*--sp = nullptr; // where fiber_main would return to; also keeps the stack aligned as after a call
	*--sp = (void *)fiber_main;
	for (int i = 0; i < 6; i++) *--sp = nullptr;
	f.sp = sp;
}
#else
void enter(Fiber &f) { swapcontext(&m.scheduler, &f.context); }
void leave(Fiber &f) { swapcontext(&f.context, &m.scheduler); }
void prepare(Fiber &f, unsigned char *stack) {
	getcontext(&f.context);
	f.context.uc_stack.ss_sp = stack;
	f.context.uc_stack.ss_size = kStack;
	f.context.uc_link = nullptr;
	makecontext(&f.context, fiber_main, 0);
}
#endif

Fiber &current() { return m.fibers[m.current]; }

void wake(int i) {
	m.fibers[i].state = ready;
	m.runnable.push_back(i);
}

// A barrier opens when all that are left have come, as on a device.
void open_barrier() {
	if (m.live == 0 || m.waiting < m.live) return;
	m.waiting = 0;
	async_block_barrier();
	for (size_t i = 0; i < m.fibers.size(); i++)
		if (m.fibers[i].state == at_barrier) wake(i);
}

// All fibers of a block whose kernel went wrong are left where they are.
void abandon(const std::string &why) {
	if (m.error.empty()) m.error = why;
	m.runnable.clear();
}

void fiber_main() {
	m.body(m.argument);
	Fiber &f = current();
	f.state = done;
	m.live--;
	if (!f.open.empty() || !f.groups.empty()) abandon("a thread ends with copies it has not waited for");
	open_barrier();
	leave(f);
	abort(); // nobody enters a fiber that is done
}

void finish(std::vector<Copy> &group) {
	for (Copy &c : group) {
		memset(c.to, 0, c.room);
		memcpy(c.to, c.from, c.bytes);
	}
	group.clear();
}

void block() {
	const int threads = blockDim.x * blockDim.y * blockDim.z;
	memset(__start_shim_shared, kPoison, __stop_shim_shared - __start_shim_shared);
	memset(dynamic_shared, kPoison, m.shared);
	m.live = threads, m.waiting = 0;
	m.runnable.clear();
	for (int i = 0; i < threads; i++) {
		Fiber &f = m.fibers[i];
		f.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
		f.open.clear(), f.groups.clear();
		prepare(f, m.stacks + i * kStack);
		wake(i);
	}
	for (Warp &w : m.warps) w.arrived = 0;
	async_begin(threads);
	while (m.error.empty()) {
		if (async_step(m.runnable.empty())) continue;
		if (m.runnable.empty()) break;
		// The newest more often: whole warps then run far ahead of others.
		const uint64_t r = next_random();
		size_t at = m.runnable.size() - 1;
		if (r & 1) at = (r >> 8) % m.runnable.size();
		m.current = m.runnable[at];
		m.runnable[at] = m.runnable.back();
		m.runnable.pop_back();
		threadIdx = current().index;
		enter(current());
	}
	if (m.error.empty() && m.live > 0) {
		m.error = "threads wait for others that never come";
		for (Warp &w : m.warps)
			if (w.arrived) m.error += std::string(": ") + w.what;
		m.error += async_waiting();
	}
	if (m.error.empty()) m.error = async_end();
}

} // namespace

int lane() { return m.current % 32; }

void fail(const char *what) {
	abandon(what);
	leave(current());
	abort();
}

void block_barrier() {
	Fiber &f = current();
	f.state = at_barrier;
	m.waiting++;
	open_barrier();
	leave(f);
}

void collective(unsigned mask, void *operands, void (*work)(void **), const char *what) {
	Warp &w = m.warps[m.current / 32];
	const int me = m.current, self = lane();
	if (!(mask >> self & 1)) fail("a lane takes part that is not in its mask");
	if (!w.arrived) {
		memset(w.operands, 0, sizeof w.operands);
		w.mask = mask, w.work = work, w.what = what;
	} else if (w.mask != mask || w.work != work) {
		fail("lanes of one warp are at different instructions");
	}
	static char nothing;
	w.operands[self] = operands ? operands : &nothing;
	w.arrived |= 1u << self;
	if (w.arrived != mask) {
		m.fibers[me].state = in_warp;
		leave(m.fibers[me]);
		return;
	}
	work(w.operands);
	w.arrived = 0;
	const int first = me / 32 * 32;
	for (int i = 0; i < 32; i++)
		if (mask >> i & 1 && first + i != me) wake(first + i);
}

void copy_later(void *to, const void *from, int bytes, int room) {
	if ((uintptr_t)to % room || (uintptr_t)from % room) fail("a copy is not aligned to its size");
	if (bytes < 0 || bytes > room) fail("a copy has more bytes than room");
	memset(to, kPoison, room);
	current().open.push_back({to, from, bytes, room});
}

void copy_group() {
	Fiber &f = current();
	f.groups.push_back(std::move(f.open));
	f.open.clear();
}

void copy_finish(int pending) {
	Fiber &f = current();
	for (; (int)f.groups.size() > pending; f.groups.pop_front()) finish(f.groups.front());
	if (pending == 0 && !f.open.empty()) fail("a thread waits for copies that it has not committed");
}

namespace {

template <class... P> struct Invocation {
	void (*kernel)(P...);
	std::tuple<P...> values;
};

// Takes the arguments from where they lie as parameters of a kernel do.
template <class... P> void run(void (*kernel)(P...), const unsigned char *args, size_t size, void (*each)(void (*)(void *), void *)) {
	Invocation<P...> call = {kernel, {}};
	size_t at = 0;
	auto take = [&](auto &value) {
		const size_t align = alignof(decltype(value));
		at = (at + align - 1) / align * align;
		if (at + sizeof value <= size) memcpy(&value, args + at, sizeof value);
		at += sizeof value;
	};
	std::apply([&](auto &...values) { (take(values), ...); }, call.values);
	if (at != size) {
		m.error = "the kernel has " + std::to_string(at) + " bytes of parameters, the launch " + std::to_string(size) + " of arguments";
		return;
	}
	each([](void *p) {
		auto *c = (Invocation<P...> *)p;
		std::apply(c->kernel, c->values);
	}, &call);
}

void grid(void (*body)(void *), void *argument) {
	m.body = body, m.argument = argument;
	for (int z = 0; z < gridDim.z; z++)
		for (int y = 0; y < gridDim.y; y++)
			for (int x = 0; x < gridDim.x && m.error.empty(); x++) {
				blockIdx = {x, y, z};
				block();
			}
}

} // namespace
} // namespace shim

unsigned shared_address(const void *p) {
	const unsigned char *c = (const unsigned char *)p;
	if (c >= shim::dynamic_shared && c < shim::dynamic_shared + shim::m.shared) return c - shim::dynamic_shared + shim::kWindow;
	if (c >= __start_shim_shared && c < __stop_shim_shared) return (c - __start_shim_shared) | 1u << 30;
	shim::fail("an address is not one of shared memory");
}

void *shared_pointer(unsigned address, int bytes) {
	const unsigned at = address & ~(1u << 30);
	if (address >> 30 & 1) {
		if (at + bytes > __stop_shim_shared - __start_shim_shared) shim::fail("an address is outside of shared memory");
		return __start_shim_shared + at;
	}
	if (at < shim::kWindow || at - shim::kWindow + bytes > shim::m.shared) shim::fail("an address is outside of shared memory");
	return shim::dynamic_shared + (at - shim::kWindow);
}

struct MatrixLoad {
	const unsigned *row;
	uint4 result;
};

uint4 load_matrix(unsigned row) {
	MatrixLoad load = {(const unsigned *)shared_pointer(row, 16), {}};
	if ((uintptr_t)load.row % 16) shim::fail("a row of a matrix is not aligned to 16 bytes");
	shim::collective(~0u, &load, [](void **lanes) {
		// Eight rows come at once, from different banks; else they come one after the other.
		for (int matrix = 0; matrix < 4; matrix++) {
			unsigned banks = 0;
			for (int i = 0; i < 8; i++) banks |= 1u << (uintptr_t)((MatrixLoad *)lanes[8 * matrix + i])->row / 16 % 8;
			if (banks != 255) shim::fail("rows of a matrix lie in the same banks of shared memory");
		}
		// Lane i gets values 2 (i % 4) and the next of row i / 4 of each matrix.
		for (int i = 0; i < 32; i++) {
			auto word = [&](int matrix) { return ((MatrixLoad *)lanes[8 * matrix + i / 4])->row[i % 4]; };
			((MatrixLoad *)lanes[i])->result = {word(0), word(1), word(2), word(3)};
		}
	}, "ldmatrix");
	return load.result;
}

struct Product {
	float *c;
	uint4 a;
	unsigned b[2];
};

void mma(float (&c)[4], const uint4 &a, unsigned b0, unsigned b1) {
	Product p = {c, a, {b0, b1}};
	shim::collective(~0u, &p, [](void **lanes) {
		float a[16][16], b[8][16];
		auto put = [](float *to, unsigned w) { to[0] = __uint_as_float(w << 16), to[1] = __uint_as_float(w & 0xffff0000u); };
		for (int i = 0; i < 32; i++) {
			const Product *p = (Product *)lanes[i];
			const int g = i / 4, t = i % 4 * 2;
			put(&a[g][t], p->a.x), put(&a[g + 8][t], p->a.y), put(&a[g][t + 8], p->a.z), put(&a[g + 8][t + 8], p->a.w);
			put(&b[g][t], p->b[0]), put(&b[g][t + 8], p->b[1]);
		}
		for (int i = 0; i < 32; i++) {
			float *c = ((Product *)lanes[i])->c;
			for (int j = 0; j < 4; j++) {
				const float *x = a[i / 4 + j / 2 * 8], *y = b[i % 4 * 2 + j % 2];
				float sum = 0;
				for (int k = 0; k < 16; k++) sum += x[k] * y[k];
				c[j] += sum;
			}
		}
	}, "mma");
}

typedef int (*Start)(const unsigned char *args, size_t size);

// shim_launch runs a kernel to its end. Arguments are packed as for cuLaunchKernel, with
// addresses of the host. It returns an empty text, or what the kernel did wrong. It is not
// reentrant.
extern "C" const char *shim_launch(Start start, const int *geometry, const unsigned char *args, size_t size, uint64_t seed) {
	using namespace shim;
	gridDim = {geometry[0], geometry[1], geometry[2]};
	blockDim = {geometry[3], geometry[4], geometry[5]};
	m.error.clear();
	const size_t threads = (size_t)blockDim.x * blockDim.y * blockDim.z;
	if (threads < 1 || threads > 1024 || threads % 32) {
		m.error = "blocks of " + std::to_string(threads) + " threads";
		return m.error.c_str();
	}
	if (m.stack_count < threads) {
		if (m.stacks) munmap(m.stacks, m.stack_count * kStack);
		m.stacks = (unsigned char *)mmap(nullptr, threads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		m.stack_count = threads;
	}
	// Behind the shared memory that the launch asks for is a page that cannot be touched.
	const size_t page = 64 << 10, room = (kMaxShared + page - 1) / page * page;
	static unsigned char *arena = nullptr;
	if (!arena) {
		arena = (unsigned char *)mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mprotect(arena + room, page, PROT_NONE);
	}
	m.shared = geometry[6];
	if (m.shared > kMaxShared || m.shared % 16) {
		m.error = std::to_string(m.shared) + " bytes of dynamic shared memory";
		return m.error.c_str();
	}
	dynamic_shared = arena + room - m.shared;
	m.fibers.resize(threads);
	m.warps.resize(threads / 32);
	m.random = seed * 0x9e3779b97f4a7c15 + 1;
	start(args, size);
	return m.error.c_str();
}

// For the function that finds kernels by their names, which is written for each build.
#define SHIM_KERNEL(known, source, name) \
	if (!strcmp(wanted, known)) \
		return [](const unsigned char *args, size_t size) { \
			shim::run(source::name, args, size, shim::grid); \
			return 0; \
		};
