// Copies minibatches: scattered rows of an array, called from Python for a block of minibatches and by
// XLA from inside the compiled chain for one; and one minibatch out of a block, called by XLA.

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

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

void CopyRows(const char* source, const void* rows, std::int64_t rows_itemsize, char* out,
              std::int64_t count, std::int64_t row_bytes) {
  if (rows_itemsize == 4) {
    CopyRows(source, static_cast<const std::int32_t*>(rows), out, count, row_bytes);
  } else {
    CopyRows(source, static_cast<const std::int64_t*>(rows), out, count, row_bytes);
  }
}

// The next two are what XLA calls, by version 3 of its interface for custom calls on the host.

// in[0]: int64, the address of the array; in[1]: the row numbers of a block of minibatches;
// in[2]: int32, which minibatch; in[3]: int64[3], rows of a minibatch, bytes of a row and of a row
// number.
void GatherRows(void* out, const void** in, const char*, std::size_t, void*) {
  std::int64_t address, shape[3];
  std::int32_t step;
  std::memcpy(&address, in[0], sizeof address);
  std::memcpy(&step, in[2], sizeof step);
  std::memcpy(shape, in[3], sizeof shape);
  const char* rows = static_cast<const char*>(in[1]) + step * shape[0] * shape[2];
  CopyRows(reinterpret_cast<const char*>(address), rows, shape[2], static_cast<char*>(out),
           shape[0], shape[1]);
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
  if (!PyArg_ParseTuple(args, "KKLKLL", &source, &rows, &rows_itemsize, &out, &count,
                        &row_bytes)) {
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS;
  CopyRows(reinterpret_cast<const char*>(source), reinterpret_cast<const void*>(rows),
           rows_itemsize, reinterpret_cast<char*>(out), count, row_bytes);
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
     "take(source, rows, rows_itemsize, out, count, row_bytes): copy rows; the first, second and "
     "fourth are addresses."},
    {"register", Register, METH_VARARGS,
     "register(library, gather_rows, copy_minibatch): let XLA, in the TensorFlow library that is "
     "loaded from this path, call the two by these names; False if that library lacks the means."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_rows", nullptr, -1, kMethods,
                       nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__rows() { return PyModule_Create(&kModule); }
