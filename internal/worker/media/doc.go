// Package media gets the embeddings of the images in prompts: from the cache of a worker,
// from an encode worker over NIXL, or by encoding on the spot. [Encoders] chooses that worker, also
// for workers whose engine others wrote.
//
// A [Plane] stays with a worker over its terms of service. It has memory that NIXL knows
// (arena.go), a cache of embeddings by key (cache.go) and perhaps an [Encoder]. A [Finder]
// belongs to a term and gets embeddings for its prompts (finder.go, read.go). What an encode
// worker does is in package worker/encode, over [Plane.Embeddings] and [Plane.Offer].
//
// Embeddings of a key are computed once: those who want them at the same time wait for each
// other. ../DESIGN.md has the protocol between two workers.
package media
