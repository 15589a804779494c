package credit

// link is one element's place in a list. An element has a link of its own for each list that it can be in.
type link[T any] struct {
	prev, next *link[T]
	of         *T
}

// in reports whether the element is in the list of this link.
func (l *link[T]) in() bool { return l.next != nil }

// list is a doubly linked ring with a root, whose links lie within its elements, so that nothing is allocated. init comes first.
type list[T any] struct{ root link[T] }

func (l *list[T]) init() { l.root.prev, l.root.next = &l.root, &l.root }

// front returns the first element, nil where there is none.
func (l *list[T]) front() *T { return l.root.next.of }

// after returns the element behind the link, nil at the end.
func (l *list[T]) after(k *link[T]) *T { return k.next.of }

func (l *list[T]) empty() bool { return l.root.next == &l.root }

// single reports whether there is exactly one element.
func (l *list[T]) single() bool { return !l.empty() && l.root.next == l.root.prev }

// push puts an element that is in no list at the end.
func (l *list[T]) push(k *link[T]) {
	k.prev, k.next = l.root.prev, &l.root
	k.prev.next, k.next.prev = k, k
}

// remove takes the element out; nothing happens where it is in no list.
func (l *list[T]) remove(k *link[T]) {
	if k.in() {
		k.prev.next, k.next.prev = k.next, k.prev
		k.prev, k.next = nil, nil
	}
}

// last moves the element to the end.
func (l *list[T]) last(k *link[T]) {
	l.remove(k)
	l.push(k)
}
