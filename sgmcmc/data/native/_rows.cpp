// Copies minibatches: scattered rows of an array, called from Python for a block of minibatches and by
// XLA from inside the compiled chain for one; and one minibatch out of a block, called by XLA.

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace {

constexpr std::int64_t kLine = 64;  // bytes of a cache line

// How far ahead rows are asked for, in bytes and in rows: as much as a core can have on its way.
constexpr std::int64_t kAheadBytes = 5120;
constexpr std::int64_t kMostAheadRows = 32;
// Of long rows the processor itself fetches the rest once it sees them read in order.
constexpr std::int64_t kPrefetchedBytes = 512;

// Rows of one number: the processor itself has many of them on their way.
template <typename Value, typename Row>
void CopyNumbers(const char* source, const Row* rows, char* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    Value value;
    std::memcpy(&value, source + static_cast<std::int64_t>(rows[i]) * sizeof value, sizeof value);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

// A call of memcpy takes as long as the copying of a short row; the last piece overlaps.
constexpr std::int64_t kPiece = 32;
constexpr std::int64_t kShortBytes = 512;

inline __attribute__((always_inline)) void CopyShort(const char* from, char* to,
                                                     std::int64_t bytes) {
  for (std::int64_t at = 0; at + kPiece <= bytes; at += kPiece) {
    __builtin_memcpy(to + at, from + at, kPiece);
  }
  __builtin_memcpy(to + bytes - kPiece, from + bytes - kPiece, kPiece);
}

template <typename Row>
void CopyRows(const char* source, const Row* rows, char* out, std::int64_t count,
              std::int64_t row_bytes) {
  if (row_bytes == 4) return CopyNumbers<std::uint32_t>(source, rows, out, count);
  if (row_bytes == 8) return CopyNumbers<std::uint64_t>(source, rows, out, count);
  const std::int64_t ahead = std::clamp(kAheadBytes / std::max<std::int64_t>(row_bytes, 1),
                                        std::int64_t{2}, kMostAheadRows);
  const std::int64_t fetched = std::min(row_bytes, kPrefetchedBytes);
  const bool is_short = row_bytes >= kPiece && row_bytes <= kShortBytes;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) {
      const char* next = source + static_cast<std::int64_t>(rows[i + ahead]) * row_bytes;
      for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(next + at);
      __builtin_prefetch(next + fetched - 1);
    }
    const char* from = source + static_cast<std::int64_t>(rows[i]) * row_bytes;
    char* to = out + i * row_bytes;
    if (is_short) {
      CopyShort(from, to, row_bytes);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(row_bytes));
    }
  }
}

// Rows to copy, a part of them at a time.
struct Job {
  const char* source;
  const char* rows;
  std::int64_t rows_itemsize;
  char* out;
  std::int64_t count, row_bytes;

  void Copy(std::int64_t first, std::int64_t stop) const {
    const char* numbers = rows + first * rows_itemsize;
    char* to = out + first * row_bytes;
    if (rows_itemsize == 4) {
      const auto* typed = reinterpret_cast<const std::int32_t*>(numbers);
      CopyRows(source, typed, to, stop - first, row_bytes);
    } else {
      const auto* typed = reinterpret_cast<const std::int64_t*>(numbers);
      CopyRows(source, typed, to, stop - first, row_bytes);
    }
  }

  void Copy() const { Copy(0, count); }
};

// The cores that a thread may run on.
class Cores {
 public:
#if defined(__linux__)
  static int Present() { return sched_getcpu(); }

  // Keeps this thread off a core, if it may run on another.
  void Leave(int core) const {
    cpu_set_t others = all_;
    CPU_CLR(core, &others);
    sched_setaffinity(0, sizeof others, &others);
  }

 private:
  static cpu_set_t All() {
    cpu_set_t all;
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    return all;
  }

  const cpu_set_t all_ = All();
#else
  static int Present() { return -1; }
  void Leave(int) const {}
#endif
};

// A second thread that takes part in large copies: one core alone cannot have enough of them on its
// way. It serves one caller at a time; others copy alone, and so do processes forked off. A caller
// waits for it only where it is in the middle of a piece. It is never destroyed, so that it may
// outlive the interpreter.
class Helper {
 public:
  void Copy(const Job& job) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock() || !Started()) return job.Copy();
    job_ = job;
    core_ = Cores::Present();
    taken_ = 0;
    open_ = ++jobs_;
    if (asleep_) wake_.notify_one();  // it may miss that, and this job
    Work();
    // Either the thread finds the job closed, or it is found inside: both are in sequence.
    open_ = 0;
    while (inside_) Pause();
  }

 private:
  static constexpr std::int64_t kTakenBytes = 32 * 1024;  // what either of the two takes on at a time
  static constexpr int kSpins = 100;  // some microseconds: others may have a use for the core

  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
  }

  // Starts the thread if there is none; false in a process where there cannot be one.
  bool Started() {
    if (process_ == 0) {
      process_ = getpid();
      try {
        std::thread([this] { Serve(); }).detach();
      } catch (const std::system_error&) {
        process_ = -1;
      }
    }
    return process_ == getpid();
  }

  void Serve() {
    const Cores cores;
    for (std::uint64_t job = 0;;) {
      job = JobAfter(job);
      // Who is woken is often put on the core of who woke it, and would only take its place there.
      if (const int core = core_; core >= 0 && core == Cores::Present()) cores.Leave(core);
      inside_ = true;
      if (open_ == job) Work();
      inside_ = false;
    }
  }

  std::uint64_t JobAfter(std::uint64_t last) {
    std::uint64_t job = 0;
    const auto found = [&] { return (job = open_) != 0 && job != last; };
    for (int spin = 0; spin < kSpins; ++spin) {
      if (found()) return job;
      Pause();
    }
    std::unique_lock<std::mutex> lock(sleep_);
    asleep_ = true;
    wake_.wait(lock, found);
    asleep_ = false;
    return job;
  }

  void Work() {
    const std::int64_t most = std::max<std::int64_t>(kTakenBytes / (job_.row_bytes + 1), 1);
    std::int64_t first;
    while ((first = taken_.fetch_add(most)) < job_.count) {
      job_.Copy(first, std::min(first + most, job_.count));
    }
  }

  std::mutex turn_, sleep_;
  std::condition_variable wake_;
  std::uint64_t jobs_ = 0;
  std::atomic<std::uint64_t> open_{0};  // number of the job that is to be worked at, or 0
  std::atomic<bool> inside_{false}, asleep_{false};
  std::atomic<std::int64_t> taken_{0};  // rows
  std::atomic<int> core_{-1};           // of the caller
  Job job_{};
  pid_t process_ = 0;  // that the thread is in
};

void CopyRows(const Job& job, bool together) {
  static Helper* const helper = new Helper;
  if (together) {
    helper->Copy(job);
  } else {
    job.Copy();
  }
}

// The next two are what XLA calls, by version 3 of its interface for custom calls on the host.

// in[0]: int64, the address of the array; in[1]: the row numbers of a block of minibatches;
// in[2]: int32, which minibatch; in[3]: int64[4], rows of a minibatch, bytes of a row and of a row
// number, and threads to copy them with, 1 or 2.
void GatherRows(void* out, const void** in, const char*, std::size_t, void*) {
  std::int64_t address, shape[4];
  std::int32_t step;
  std::memcpy(&address, in[0], sizeof address);
  std::memcpy(&step, in[2], sizeof step);
  std::memcpy(shape, in[3], sizeof shape);
  const char* rows = static_cast<const char*>(in[1]) + step * shape[0] * shape[2];
  const auto* source = reinterpret_cast<const char*>(address);
  CopyRows({source, rows, shape[2], static_cast<char*>(out), shape[0], shape[1]}, shape[3] > 1);
}

// in[0]: a block of minibatches; in[1]: int32, which of them; in[2]: int64, bytes of one.
void CopyMinibatch(void* out, const void** in, const char*, std::size_t, void*) {
  std::int32_t step;
  std::int64_t bytes;
  std::memcpy(&step, in[1], sizeof step);
  std::memcpy(&bytes, in[2], sizeof bytes);
  std::memcpy(out, static_cast<const char*>(in[0]) + step * bytes, static_cast<std::size_t>(bytes));
}

PyObject* Take(PyObject*, PyObject* args) {
  unsigned long long source, rows, out;
  long long rows_itemsize, count, row_bytes;
  int threads = 1;
  if (!PyArg_ParseTuple(args, "KKLKLL|i", &source, &rows, &rows_itemsize, &out, &count, &row_bytes,
                        &threads)) {
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS;
  CopyRows({reinterpret_cast<const char*>(source), reinterpret_cast<const char*>(rows),
            rows_itemsize, reinterpret_cast<char*>(out), count, row_bytes},
           threads > 1);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

// xla::CustomCallTargetRegistry::Global() and ::Register(), as the Itanium ABI names them.
constexpr char kGlobal[] = "_ZN3xla24CustomCallTargetRegistry6GlobalEv";
constexpr char kRegister[] =
    "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_string"
    "IcSt11char_traitsIcESaIcEEEPvS8_";

PyObject* Register(PyObject*, PyObject* args) {
  const char *library, *gather_rows, *copy_minibatch;
  if (!PyArg_ParseTuple(args, "sss", &library, &gather_rows, &copy_minibatch)) return nullptr;
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) Py_RETURN_FALSE;
  using Global = void* (*)();
  using Add = void (*)(void*, const std::string&, void*, const std::string&);
  const auto global = reinterpret_cast<Global>(dlsym(handle, kGlobal));
  const auto add = reinterpret_cast<Add>(dlsym(handle, kRegister));
  const bool found = global != nullptr && add != nullptr;
  if (found) {
    add(global(), gather_rows, reinterpret_cast<void*>(&GatherRows), "Host");
    add(global(), copy_minibatch, reinterpret_cast<void*>(&CopyMinibatch), "Host");
  }
  dlclose(handle);
  if (found) Py_RETURN_TRUE;
  Py_RETURN_FALSE;
}

PyMethodDef kMethods[] = {
    {"take", Take, METH_VARARGS,
     "take(source, rows, rows_itemsize, out, count, row_bytes, threads=1): copy rows; the first, "
     "second and fourth are addresses."},
    {"register", Register, METH_VARARGS,
     "register(library, gather_rows, copy_minibatch): let XLA, in the TensorFlow library that is "
     "loaded from this path, call the two by these names; False if that library lacks the means."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_rows", nullptr, -1, kMethods,
                       nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__rows() { return PyModule_Create(&kModule); }
