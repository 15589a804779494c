// Package hardware counts what the processor did for this process: cycles, instructions, cache and branch misses, where the machine has counters for
// them and lets a process use them.
//
// Many machines do not: a virtual machine seldom has them, and a system may keep them for itself. Then there is one reason and no zero that would
// pretend to be a figure.
package hardware
