// What goes on beside the threads of a block: see async.h.
#include "async.h"

#include <map>

namespace shim {
namespace {

const int kWarps = 32, kBarriers = 64, kRow = 128; // bytes of shared memory that are watched as one

// What a warp knows: how far the warps were, and how many phases of the barriers had ended.
struct Clock {
	unsigned at[kWarps + kBarriers] = {};
	void join(const Clock &o) {
		for (int i = 0; i < kWarps + kBarriers; i++) at[i] = std::max(at[i], o.at[i]);
	}
};

struct Barrier {
	int index, arrivals, left;
	long long bytes; // announced and not yet come
	unsigned phase;
	int maker; // warp
	unsigned made;
	bool published;
	Clock arriving, ended;
	std::vector<std::pair<int, unsigned>> waiting; // fibers and parities
};

// The matrix of a tensor map, as package fake encodes it.
struct Box {
	uint64_t mark, address, rows, columns, stride, box_rows, box_columns;
};

struct BoxCopy {
	unsigned to, barrier;
	Box box;
	int column, row;
};

// What is known of 128 bytes of shared memory.
struct Row {
	bool filled, flying;
	int barrier;            // that the last copy told
	unsigned phase;         // in which
	unsigned reads[kWarps]; // when products of the warps have last read it
};

// A product of a warp that has not been waited for.
struct Product64 {
	unsigned long long a, b;
	int columns;
	float *d; // of its first lane
};

// Sums while products are under way.
struct Sums {
	float *d[32];
	std::vector<float> values[32];
	int products;
};

struct WarpState {
	Clock clock;
	std::vector<Product64> open;
	std::deque<std::vector<Product64>> groups;
	std::map<float *, Sums> sums;
	bool fenced;
	size_t issued;
	int registers;
};

std::map<unsigned, Barrier> barriers;
std::vector<BoxCopy> copies;
std::vector<Row> rows;
std::vector<WarpState> warps;
std::vector<std::vector<Product64>> issued; // of each warp group, by any of its warps

int warp() { return m.current / 32; }
WarpState &self() { return warps[warp()]; }

Row &row_at(unsigned address) {
	shared_pointer(address, 1); // or it fails
	if (address >> 30) fail("copies and products use dynamic shared memory");
	return rows[address / kRow];
}

// The swizzle of 128 bytes: address bits 4 to 6 are exchanged by bits 7 to 9 ("Swizzling
// modes" of tensors, and "Shared Memory Matrix Layout" of wgmma).
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

Barrier &barrier_at(unsigned address) {
	auto found = barriers.find(address);
	if (found == barriers.end()) fail("a barrier was not initialized");
	Barrier &b = found->second;
	if (warp() != b.maker && self().clock.at[b.maker] < b.made) fail("a barrier is used before its initialization is known");
	return b;
}

void maybe_end(Barrier &b) {
	if (b.left > 0 || b.bytes != 0) return;
	b.phase++;
	b.left = b.arrivals;
	b.ended.join(b.arriving);
	b.ended.at[kWarps + b.index] = b.phase;
	b.arriving = Clock();
	std::vector<std::pair<int, unsigned>> waiting;
	waiting.swap(b.waiting);
	for (auto &w : waiting) {
		if ((b.phase & 1) == w.second) {
			b.waiting.push_back(w);
			continue;
		}
		warps[w.first / 32].clock.join(b.ended);
		wake(w.first);
	}
}

void arrive(Barrier &b) {
	if (b.left == 0) fail("a barrier has more arrivals than it waits for");
	b.arriving.join(self().clock);
	b.left--;
	maybe_end(b);
}

Box box_of(const void *map) {
	Box box;
	memcpy(&box, map, sizeof box);
	if (box.mark != 0x50414d45544e4554) fail("a copy has no tensor map");
	if ((uintptr_t)map % 64) fail("a tensor map is not aligned to 64 bytes");
	if (box.box_columns * 2 != kRow) fail("rows of a box have other than 128 bytes");
	return box;
}

// Writes a box, with zeros for what is outside of the matrix.
void land(const BoxCopy &c) {
	for (unsigned i = 0; i < c.box.box_rows; i++)
		for (unsigned j = 0; j < c.box.box_columns; j++) {
			const long long row = c.row + (long long)i, column = c.column + (long long)j;
			unsigned short value = 0;
			if (row >= 0 && row < (long long)c.box.rows && column >= 0 && column < (long long)c.box.columns)
				value = *(const unsigned short *)(c.box.address + row * c.box.stride + column * 2);
			*(unsigned short *)shared_pointer(swizzled(c.to + i * kRow + j * 2), 2) = value;
		}
	Barrier &b = barriers.at(c.barrier);
	for (unsigned i = 0; i < c.box.box_rows; i++) {
		Row &r = rows[c.to / kRow + i];
		r.filled = true, r.flying = false, r.barrier = b.index, r.phase = b.phase;
	}
	b.bytes -= (long long)c.box.box_rows * kRow;
	if (b.bytes < 0) {
		abandon("more bytes have come to a barrier than were announced");
		return;
	}
	maybe_end(b);
}

// Rows of a matrix of so many rows of 16 values, by its descriptor ("Matrix Descriptor
// Format" and "Strides" of wgmma; rows are along K).
struct Matrix {
	unsigned start, stride;
	explicit Matrix(unsigned long long d) {
		start = (d & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
		if (d >> 62 != 1) fail("a descriptor is not for the 128-byte swizzle");
		if (d >> 49 & 7) fail("a descriptor has a base offset");
		if (start % 1024 >= kRow) fail("the pattern of a matrix does not begin at a multiple of 1024 bytes");
		if (start % kRow + 32 > kRow) fail("a matrix leaves its rows of 128 bytes");
		if (start % 16 || stride % 1024) fail("a matrix is not aligned");
	}
	unsigned row(int i) const { return start + i / 8 * stride + i % 8 * kRow; }
	bool within(int i, unsigned from, unsigned to) const { return row(i) / kRow * kRow + kRow > from && row(i) < to; }
	float value(int i, int k) const {
		const unsigned short v = *(const unsigned short *)shared_pointer(swizzled(row(i) + 2 * k), 2);
		return __uint_as_float((unsigned)v << 16);
	}
};

void each_row(const Product64 &p, void (*f)(Row &r)) {
	const Matrix a(p.a), b(p.b);
	for (int i = 0; i < 64; i++) f(row_at(a.row(i)));
	for (int i = 0; i < p.columns; i++) f(row_at(b.row(i)));
}

// Adds a product to the sums of a warp, which are 16 of its 64 rows.
void add(WarpState &w, const Product64 &p, int slice) {
	const Matrix a(p.a), b(p.b);
	Sums &s = w.sums.at(p.d);
	std::vector<float> values(p.columns * 16);
	for (int j = 0; j < p.columns; j++)
		for (int k = 0; k < 16; k++) values[j * 16 + k] = b.value(j, k);
	for (int i = 0; i < 16; i++) {
		float x[16];
		for (int k = 0; k < 16; k++) x[k] = a.value(slice * 16 + i, k);
		for (int j = 0; j < p.columns; j++) {
			// One rounding for all sixteen: other than what mma makes, as hardware may.
			double sum = 0;
			for (int k = 0; k < 16; k++) sum += (double)x[k] * values[j * 16 + k];
			s.values[i % 8 * 4 + j % 8 / 2][j / 8 * 4 + i / 8 * 2 + j % 2] += (float)sum;
		}
	}
	if (--s.products > 0) return;
	for (int lane = 0; lane < 32; lane++) memcpy(s.d[lane], s.values[lane].data(), s.values[lane].size() * sizeof(float));
	w.sums.erase(p.d);
	w.fenced = false; // who uses the sums now does so before the next fence
}

struct Issue {
	float *d;
	int columns;
	unsigned long long a, b;
};

void issue(void **lanes) {
	WarpState &w = self();
	const Issue &first = *(Issue *)lanes[0];
	const Product64 p = {first.a, first.b, first.columns, first.d};
	for (int i = 0; i < 32; i++) {
		const Issue &o = *(Issue *)lanes[i];
		if (o.a != p.a || o.b != p.b || o.columns != p.columns) fail("lanes of a warp multiply different matrices");
	}
	auto &all = issued[warp() / 4];
	if (w.issued == all.size()) all.push_back(p);
	const Product64 &same = all[w.issued++];
	if (same.a != p.a || same.b != p.b || same.columns != p.columns) fail("warps of a warp group multiply different matrices");
	if (!w.fenced) fail("a product begins without a fence after other instructions may have used its sums");
	each_row(p, [](Row &r) {
		if (r.flying) fail("a product reads what a copy is still writing");
		if (!r.filled) fail("a product reads shared memory that no copy has filled");
		if (self().clock.at[kWarps + r.barrier] <= r.phase) fail("a product reads a stage without having waited for its barrier");
	});
	Sums &s = w.sums[p.d];
	const bool fresh = s.products++ == 0;
	const size_t bytes = p.columns / 2 * sizeof(float);
	const std::vector<unsigned char> poison(bytes, kPoison);
	for (int i = 0; i < 32; i++) {
		float *d = ((Issue *)lanes[i])->d;
		if (fresh) {
			s.d[i] = d;
			s.values[i].assign(d, d + p.columns / 2);
			memcpy(d, poison.data(), bytes);
		} else if (s.d[i] != d || memcmp(d, poison.data(), bytes)) {
			fail("sums were changed while products were under way");
		}
	}
	w.open.push_back(p);
}

void finish_products(WarpState &w, int index, size_t pending) {
	if (pending == 0 && !w.open.empty()) fail("a warp waits for products that it has not committed");
	for (; w.groups.size() > pending; w.groups.pop_front()) {
		for (const Product64 &p : w.groups.front()) {
			add(w, p, index % 4);
			w.clock.at[index]++;
			each_row(p, [](Row &r) { r.reads[warp()] = self().clock.at[warp()]; });
		}
	}
}

} // namespace

// Called by shim.cc.

void async_begin(int threads) {
	barriers.clear(), copies.clear();
	rows.assign((kWindow + kMaxShared) / kRow + 1, Row{});
	warps.assign(threads / 32, WarpState{});
	issued.assign((threads + 127) / 128, {});
	for (size_t i = 0; i < warps.size(); i++) warps[i].clock.at[i] = 1, warps[i].registers = 65536 / threads & ~7;
}

// Lands one of the copies under way, at some time, at once if nothing else can go on; false
// if it did not.
bool async_step(bool at_once) {
	if (copies.empty() || !at_once && next_random() % 4) return false;
	const size_t at = next_random() % copies.size();
	const BoxCopy c = copies[at];
	copies.erase(copies.begin() + at);
	land(c);
	return true;
}

void async_block_barrier() {
	Clock all;
	for (WarpState &w : warps) all.join(w.clock);
	for (size_t i = 0; i < warps.size(); i++) warps[i].clock = all, warps[i].clock.at[i]++;
}

// What is wrong at the end of a block; empty for nothing.
std::string async_end() {
	int registers = 0;
	for (size_t i = 0; i < warps.size(); i++) {
		const WarpState &w = warps[i];
		registers += w.registers * 32;
		if (!w.open.empty() || !w.groups.empty()) return "a warp ends with products it has not waited for";
		if (w.issued != issued[i / 4].size()) return "a warp of a warp group has multiplied less than the others";
	}
	if (registers > 65536) return "warps take more registers than others have given";
	if (!copies.empty()) return "a block ends with copies under way";
	return "";
}

std::string async_waiting() {
	std::string text;
	for (auto &b : barriers)
		if (!b.second.waiting.empty())
			text += ": a barrier waits for " + std::to_string(b.second.left) + " arrivals and " + std::to_string(b.second.bytes) + " bytes";
	return text;
}

void copy_box(unsigned to, const void *map, int column, int row, unsigned barrier) {
	const Box box = box_of(map);
	Barrier &b = barrier_at(barrier);
	if (!b.published) fail("a copy uses a barrier that was not published");
	if (to % kRow) fail("the target of a copy is not aligned to 128 bytes");
	const unsigned end = to + box.box_rows * kRow;
	shared_pointer(to, end - to);
	for (auto &other : barriers)
		if (other.first + 8 > to && other.first < end) fail("a copy overwrites a barrier");
	for (unsigned at = to; at < end; at += kRow) {
		Row &r = row_at(at);
		if (r.flying) fail("two copies write the same memory");
		for (size_t w = 0; w < warps.size(); w++)
			if (self().clock.at[w] < r.reads[w]) fail("a copy overwrites a stage without knowing that its readers have ended");
	}
	for (WarpState &w : warps)
		for (size_t g = 0; g <= w.groups.size(); g++)
			for (const Product64 &p : g < w.groups.size() ? w.groups[g] : w.open) {
				const Matrix x(p.a), y(p.b);
				for (int i = 0; i < 64; i++)
					if (x.within(i, to, end)) fail("a copy overwrites what a product may still read");
				for (int i = 0; i < p.columns; i++)
					if (y.within(i, to, end)) fail("a copy overwrites what a product may still read");
			}
	for (unsigned at = to; at < end; at += kRow) row_at(at).flying = true;
	memset(shared_pointer(to, end - to), kPoison, end - to);
	copies.push_back({to, barrier, box, column, row});
}

void check_map(const void *map) { box_of(map); }

void multiply(float *d, int columns, unsigned long long a, unsigned long long b) {
	Issue o = {d, columns, a, b};
	collective(~0u, &o, issue, "wgmma");
}

void wait_products(int pending) {
	int n = pending;
	collective(~0u, &n, [](void **lanes) { finish_products(self(), warp(), *(int *)lanes[0]); }, "wgmma.wait_group");
}

void set_registers(int n, bool more) {
	if (n % 8 || n < 24 || n > 256) fail("a number of registers that setmaxnreg does not take");
	int count = more ? n : -n;
	collective(~0u, &count, [](void **lanes) {
		const int n = *(int *)lanes[0];
		if (n < 0 ? -n > self().registers : n < self().registers) fail("setmaxnreg goes the wrong way");
		self().registers = n < 0 ? -n : n;
	}, "setmaxnreg");
}

} // namespace shim

using namespace shim;

void barrier_init(unsigned address, int arrivals) {
	if (address % 8 || arrivals < 1) fail("a barrier is not aligned, or waits for nobody");
	shared_pointer(address, 8);
	if (barriers.count(address) || barriers.size() == kBarriers) fail("a barrier is initialized twice, or there are too many");
	Barrier b = {(int)barriers.size(), arrivals, arrivals, 0, 0, warp(), ++self().clock.at[warp()], false};
	barriers[address] = b;
}

void barrier_publish() {
	for (auto &b : barriers)
		if (b.second.maker == warp()) b.second.published = true;
}

void barrier_arrive(unsigned address) { arrive(barrier_at(address)); }

void barrier_expect(unsigned address, int bytes) {
	Barrier &b = barrier_at(address);
	b.bytes += bytes;
	arrive(b);
}

void barrier_wait(unsigned address, unsigned parity) {
	Barrier &b = barrier_at(address);
	if ((b.phase & 1) != parity) {
		self().clock.join(b.ended);
		return;
	}
	b.waiting.push_back({m.current, parity});
	current().state = in_warp;
	leave(current());
}

void wgmma_fence() {
	collective(~0u, nullptr, [](void **) { self().fenced = true; }, "wgmma.fence");
}

void wgmma_commit() {
	collective(~0u, nullptr, [](void **) {
		self().groups.push_back(std::move(self().open));
		self().open.clear();
	}, "wgmma.commit_group");
}
