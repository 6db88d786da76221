package topofile

import "flag"

var update = flag.Bool("update", false, "write the schema instead of comparing it")

const examples = "../../configs/topologies/"
