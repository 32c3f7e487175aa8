/* A mount whose inode numbers have their highest bit set, for the processes that load this with LD_PRELOAD: what
   mergerfs, GlusterFS, CIFS and others that make numbers from hashes give. Only regular files have such numbers. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#define HIGH (1ull << 63)
#define REAL(name, ...) \
    static int (*real)(__VA_ARGS__); \
    if (!real) real = (int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define RAISED(call) \
    int result = call; \
    if (result == 0 && S_ISREG(found->st_mode)) found->st_ino |= HIGH; \
    return result

#define FUNCTIONS(suffix) \
    int stat##suffix(const char *path, struct stat##suffix *found) { \
        REAL("stat" #suffix, const char *, struct stat##suffix *); \
        RAISED(real(path, found)); \
    } \
    int lstat##suffix(const char *path, struct stat##suffix *found) { \
        REAL("lstat" #suffix, const char *, struct stat##suffix *); \
        RAISED(real(path, found)); \
    } \
    int fstat##suffix(int file, struct stat##suffix *found) { \
        REAL("fstat" #suffix, int, struct stat##suffix *); \
        RAISED(real(file, found)); \
    } \
    int fstatat##suffix(int directory, const char *path, struct stat##suffix *found, int flags) { \
        REAL("fstatat" #suffix, int, const char *, struct stat##suffix *, int); \
        RAISED(real(directory, path, found, flags)); \
    } \
    struct dirent##suffix *readdir##suffix(DIR *directory) { \
        static struct dirent##suffix *(*real)(DIR *); \
        if (!real) real = (struct dirent##suffix * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir" #suffix); \
        struct dirent##suffix *entry = real(directory); \
        if (entry && entry->d_type == DT_REG) entry->d_ino |= HIGH; \
        return entry; \
    }

FUNCTIONS()
FUNCTIONS(64)
