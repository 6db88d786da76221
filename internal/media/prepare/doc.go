// Package prepare turns pictures into the input of a vision tower, as the image
// processor of the checkpoint does.
//
// Start with [Load], which reads the files of a checkpoint. A [Processor] then answers two
// questions: [Processor.Plan] says, from a picture's size alone, how many tokens it takes
// and which text stands for it in the prompt; [Processor.Prepare] computes the numbers.
// Both always agree, so that a frontend may plan what another process prepares.
//
// Processors are data: a family says how pictures are cut, a class which fields its file
// may have and what absent ones mean. A field that is not known is an error, as it could
// change the numbers. They follow the processors of transformers which work with Pillow.
// A file that names a "fast" processor, which works with torchvision, is read the same
// way; the resampling that the file names counts.
//
// Everything here is pure; a Processor may be used by many goroutines at once.
package prepare
