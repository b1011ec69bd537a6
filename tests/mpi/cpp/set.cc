// A C++ program of our own: containers as buffers, classes that free what they made, structs as datatypes, functions of the
// program as operations, and errors that become exceptions.

#include <mpi.h>

#include <complex>
#include <cstddef>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(bool good, const char *what) {
    if (!good) {
        std::cerr << "not so: " << what << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

void must(int code) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw std::runtime_error(std::string(text, static_cast<std::size_t>(length)));
}

template <typename T> MPI_Datatype type_of();
template <> MPI_Datatype type_of<int>() { return MPI_INT; }
template <> MPI_Datatype type_of<double>() { return MPI_DOUBLE; }
template <> MPI_Datatype type_of<bool>() { return MPI_CXX_BOOL; }
template <> MPI_Datatype type_of<std::complex<double>>() { return MPI_CXX_DOUBLE_COMPLEX; }

class Comm {
  public:
    explicit Comm(MPI_Comm other) { must(MPI_Comm_dup(other, &comm_)); }
    Comm(const Comm &) = delete;
    Comm &operator=(const Comm &) = delete;
    ~Comm() { MPI_Comm_free(&comm_); }

    int rank() const {
        int rank = -1;
        must(MPI_Comm_rank(comm_, &rank));
        return rank;
    }
    int size() const {
        int size = 0;
        must(MPI_Comm_size(comm_, &size));
        return size;
    }
    template <typename T> T sum(const T &value) const {
        T all{};
        must(MPI_Allreduce(&value, &all, 1, type_of<T>(), MPI_SUM, comm_));
        return all;
    }
    MPI_Comm get() const { return comm_; }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

struct Particle {
    double place[3];
    int kind;
    char mark;
};

MPI_Datatype particle_type() {
    int lengths[] = {3, 1, 1};
    MPI_Aint places[] = {offsetof(Particle, place), offsetof(Particle, kind), offsetof(Particle, mark)};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_CHAR}, loose = MPI_DATATYPE_NULL, made = MPI_DATATYPE_NULL;
    must(MPI_Type_create_struct(3, lengths, places, types, &loose));
    must(MPI_Type_create_resized(loose, 0, sizeof(Particle), &made));
    must(MPI_Type_commit(&made));
    must(MPI_Type_free(&loose));
    return made;
}

void longest(void *in, void *inout, int *count, MPI_Datatype *) {
    const int *from = static_cast<const int *>(in);
    int *into = static_cast<int *>(inout);
    for (int i = 0; i < *count; i++) into[i] = from[i] > into[i] ? from[i] : into[i];
}

void containers(const Comm &comm) {
    std::vector<int> all(static_cast<std::size_t>(comm.size()));
    int rank = comm.rank();
    must(MPI_Allgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, comm.get()));
    std::vector<int> wanted(all.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    check(all == wanted, "each rank's part is in its place");
    check(comm.sum(1) == comm.size(), "a sum of integers");
    check(comm.sum(1.5) == 1.5 * comm.size(), "a sum of doubles");
    check(comm.sum(std::complex<double>(1, -2)) == std::complex<double>(comm.size(), -2 * comm.size()), "of complex numbers");
    bool yes = true, every = false;
    must(MPI_Allreduce(&yes, &every, 1, type_of<bool>(), MPI_LAND, comm.get()));
    check(every, "truth values of C++");
    std::string text = rank == 0 ? "told by the first" : std::string(17, ' ');
    must(MPI_Bcast(&text[0], static_cast<int>(text.size()), MPI_CHAR, 0, comm.get()));
    check(text == "told by the first", "a string");
}

void structs(const Comm &comm) {
    MPI_Datatype type = particle_type();
    int rank = comm.rank(), next = (rank + 1) % comm.size(), last = (rank + comm.size() - 1) % comm.size();
    std::vector<Particle> out(1000), in(1000);
    for (std::size_t i = 0; i < out.size(); i++) out[i] = {{double(i), double(rank), -1.0}, int(i) * 3, char('a' + rank % 26)};
    must(MPI_Sendrecv(out.data(), 1000, type, next, 5, in.data(), 1000, type, last, 5, comm.get(), MPI_STATUS_IGNORE));
    check(in[999].place[0] == 999 && in[999].place[1] == last && in[999].kind == 2997 && in[999].mark == 'a' + last % 26, "structs");
    must(MPI_Type_free(&type));
}

void operations(const Comm &comm) {
    MPI_Op op = MPI_OP_NULL;
    must(MPI_Op_create(longest, 1, &op));
    int mine[] = {comm.rank(), -comm.rank()}, all[] = {-9, -9};
    must(MPI_Allreduce(mine, all, 2, MPI_INT, op, comm.get()));
    check(all[0] == comm.size() - 1 && all[1] == 0, "an operation of the program");
    must(MPI_Op_free(&op));
}

void exceptions(const Comm &comm) {
    must(MPI_Comm_set_errhandler(comm.get(), MPI_ERRORS_RETURN));
    std::string said;
    try {
        int nothing = 0;
        must(MPI_Send(&nothing, 1, MPI_INT, comm.size() + 5, 0, comm.get()));
    } catch (const std::runtime_error &error) {
        said = error.what();
    }
    check(said.find("MPI_Send") != std::string::npos, "an error becomes an exception");
}

void threads(const Comm &comm) {
    int next = (comm.rank() + 1) % comm.size(), last = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<std::thread> all;
    for (int tag = 100; tag < 104; tag++) {
        all.emplace_back([&comm, next, last, tag] {
            for (int round = 0; round < 20; round++) {
                int out = tag * round, in = -1;
                must(MPI_Sendrecv(&out, 1, MPI_INT, next, tag, &in, 1, MPI_INT, last, tag, comm.get(), MPI_STATUS_IGNORE));
                check(in == out, "threads have their own messages");
            }
        });
    }
    for (auto &thread : all) thread.join();
}

} // namespace

int main(int argc, char **argv) {
    int granted = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
    check(granted == MPI_THREAD_MULTIPLE, "threads are granted");
    {
        auto comm = std::make_unique<Comm>(MPI_COMM_WORLD);
        containers(*comm);
        structs(*comm);
        operations(*comm);
        threads(*comm);
        exceptions(*comm);
        if (comm->rank() == 0) std::cout << "c++: good with " << comm->size() << std::endl;
    }
    return MPI_Finalize();
}
