// Package safetensors reads and writes model weights in the safetensors format:
// a JSON header followed by the raw tensors.
//
// Start with [OpenSet], which maps all weight files of a folder, [Open] for one
// file, and [Layout] for writing one.
//
// A [File] owns its mapping and its open file until Close; the tensors' Data
// point into the mapping and die with it. Everything may be read by many
// goroutines at once. A file that shrinks under its mapping makes reads fault:
// its CheckSize tells whether that happened.
//
// The reader refuses every malformed header by name rather than guessing, because
// encoding/json alone accepts several of them. It converts nothing: it hands out
// bytes with a shape and a dtype, and knows nothing of models.
package safetensors
