// Package encode is the role of workers that turn images into embeddings for others.
//
// A worker that prefills calls one for each image of a prompt whose embeddings it lacks. The
// encode worker fetches the image from the frontend, computes the embeddings with the vision
// tower, answers where they are, and keeps them until they were read over NIXL. ../DESIGN.md
// has the protocol, package worker/media the memory and the cache.
//
// Start with [Role].
package encode
