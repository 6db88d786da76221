// Package tensorfile reads files of embeddings that clients upload in place of images:
// what torch.save writes (.pt, .pth, .bin) and safetensors.
//
// Start with [Read]. A file of torch.save is a program: a pickle that torch runs. This
// package runs none. It knows the instructions which build dictionaries, lists and
// tensors, and the few names that these refer to; everything else is an error which names
// it. Sizes are believed only after they were compared with what is there, so that a file
// costs no more memory than the limits say.
//
// Errors match [ErrFormat], [ErrUnsupported] or [ErrLimit]. Everything here is pure.
package tensorfile
