//go:build !race

package orders_test

// usualOperations is how many commands the comparison with the model takes where nobody says how many.
const usualOperations = 50_000
