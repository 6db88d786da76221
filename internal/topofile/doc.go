// Package topofile reads and writes topologies as people keep them: YAML files with a
// model, workers of each role, their engines and the settings at run time.
//
// [Parse] returns a [File], or [Problems] with everything that is wrong and where;
// [File.YAML] writes what Parse reads back; [Diff] lists what differs between two, and
// [Schema] describes the form to editors. All of them follow one table, [Fields]: a new
// field of a topology is one line there.
//
// Everything here is pure: no file is read and no cluster is asked.
package topofile

//go:generate go test -run ^TestSchema$ . -update
