// Package drawn draws pictures that only somebody can describe who has seen them: codes on
// doors, shapes, charts of bars, and panels of workers, each with questions and their
// answers. An embedding that was lost, mixed up or damaged on its way between workers is a
// picture that nobody has seen, so that a right answer proves its transfer.
//
// Start with [Draw]. The built-in vision model (docs/demo-model.md) is trained and measured
// with these pictures; other models that see can answer the questions, too.
//
// It is pure: what asks, and which worker computes what, is for others.
package drawn
