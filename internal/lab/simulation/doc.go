// Package simulation is what dynlab simulate does: it reads what a topology file declares
// ([Declared]), plays it with package simulate, and shows results beside each other
// ([Show], [Draw]).
package simulation
