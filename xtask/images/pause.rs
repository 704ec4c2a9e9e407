//! The process that holds a pod's namespaces open.
//! It never ends by itself: the container runtime kills it.

fn main() {
    loop {
        std::thread::park();
    }
}
