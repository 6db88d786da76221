// Package quantcache keeps quantized weights in a file between starts.
//
// Start with [Open] and [File], and with [Create] and [Writer] to make a file. Each
// file holds the quantized tensors of one checkpoint in one format, and says which:
// [Contents]. It is written under another name and renamed when it is on the disk, so
// a process that is killed leaves no half of one; every piece of it has a checksum,
// and Open reads them all. [Lock] keeps processes from doing the same work at once;
// without it the last one to rename wins, and those that mapped another file keep it.
//
// A File owns its mapping until Close, and its tensors die with it; it may be used by
// many goroutines at once. A Writer may be filled by one goroutine, and uses others to
// do so.
//
// Layout, all numbers little-endian:
//
//	0   magic, 8 bytes
//	8   version, uint32
//	12  CRC-32C of all that follows before the data, uint32
//	16  length of the table in bytes, uint64
//	24  number of pieces, uint64
//	32  length of the data in bytes, uint64
//	40  table: [Contents] in JSON
//	    CRC-32C of each piece, uint32
//	    data from the next multiple of 4096 to the end of the file
//
// The tensors lie in the order of the table from multiples of 64 on. A piece is as many
// rows of a tensor as fit into 1 MiB, or one.
//
// It does not know how weights are quantized, nor what the tensors are for.
package quantcache
