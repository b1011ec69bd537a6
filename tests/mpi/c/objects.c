/* Environment, errors and their handlers, attributes, info, the tools interface, refusals. */
#include "check.h"

static int copies, deletions, handled;

static int copy_fn(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    copies += *(int *)extra;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_fn(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static int type_copy_fn(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag)
{
    return copy_fn((MPI_Comm)type, key, extra, in, out, flag);
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled = *code;
}

static void environment(void)
{
    int flag, level, version, sub, len;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Finalized(&flag);
    CHECK(!flag);
    MPI_Query_thread(&level);
    CHECK(level == MPI_THREAD_MULTIPLE);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    MPI_Get_version(&version, &sub);
    CHECK(version == 3 && sub == 1);
    MPI_Get_library_version(text, &len);
    CHECK(strncmp(text, "Viaduct", 7) == 0 && (int)strlen(text) == len);
    MPI_Get_processor_name(text, &len);
    CHECK(len > 0);
    double before = MPI_Wtime();
    while (MPI_Wtime() - before < 1e-4)
        ;
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
    int *memory;
    MPI_Alloc_mem(100000, MPI_INFO_NULL, &memory);
    memory[0] = rank;
    memory[24999] = 1;
    int other = -1;
    MPI_Sendrecv(memory, 1, MPI_INT, (rank + 1) % size, 0, &other, 1, MPI_INT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(other == (rank + size - 1) % size);
    MPI_Free_mem(memory);
    MPI_Pcontrol(1);
}

static void errors(void)
{
    MPI_Errhandler mine, now;
    MPI_Comm copy;
    int class, code, own_class, own_code, len, *last, flag;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_get_errhandler(copy, &now);
    CHECK(now == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(copy, mine);
    MPI_Errhandler_free(&mine);
    CHECK(mine == MPI_ERRHANDLER_NULL);
    code = MPI_Send(NULL, 1, MPI_INT, size + 1, 0, copy);
    CHECK(code != MPI_SUCCESS && handled == code);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    code = MPI_Bcast(&len, 1, MPI_INT, size, copy);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_ROOT);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, "MPI_Bcast") != NULL && (int)strlen(text) == len);
    MPI_Error_class(MPI_T_ERR_INVALID_NAME, &class);
    CHECK(class == MPI_T_ERR_INVALID_NAME);
    MPI_Add_error_class(&own_class);
    MPI_Add_error_code(own_class, &own_code);
    MPI_Add_error_string(own_code, "of our own");
    MPI_Error_class(own_code, &class);
    CHECK(class == own_class);
    MPI_Error_string(own_code, text, &len);
    CHECK(strcmp(text, "of our own") == 0);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    CHECK(flag && *last >= own_code);
    handled = 0;
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(copy, mine);
    MPI_Comm_call_errhandler(copy, own_code);
    CHECK(handled == own_code);
    MPI_Errhandler_free(&mine);
    /* What is not there yet says so. */
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    MPI_Request request;
    code = MPI_Ibarrier(copy, &request);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, "MPI_Ibarrier") != NULL);
    MPI_Comm_free(&copy);
}

static void attributes(void)
{
    int key, flag, one = 1, *tag_ub;
    char *value, here[4];
    MPI_Comm copy;
    MPI_Datatype type, other;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag);
    CHECK(flag && *tag_ub >= 32767);
    MPI_Comm_create_keyval(copy_fn, delete_fn, &key, &one);
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, here);
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(flag && value == here);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_get_attr(copy, key, &value, &flag);
    CHECK(flag && value == here + 1 && copies == 1);
    MPI_Comm_free(&copy);
    CHECK(deletions == 1);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    CHECK(deletions == 2);
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, here);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    MPI_Comm_get_attr(copy, key, &value, &flag);
    CHECK(flag && value == here);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free(&copy);
    MPI_Type_create_keyval(type_copy_fn, MPI_TYPE_NULL_DELETE_FN, &key, &one);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, key, here);
    MPI_Type_dup(type, &other);
    MPI_Type_get_attr(other, key, &value, &flag);
    CHECK(flag && value == here + 1 && copies == 2);
    MPI_Type_delete_attr(other, key);
    MPI_Type_get_attr(other, key, &value, &flag);
    CHECK(!flag);
    MPI_Type_free(&other);
    MPI_Type_free(&type);
    MPI_Type_free_keyval(&key);
}

static void infos(void)
{
    MPI_Info info, copy;
    int n, flag, len;
    char text[MPI_MAX_INFO_VAL + 1], key[MPI_MAX_INFO_KEY + 1];
    MPI_Info_create(&info);
    MPI_Info_set(info, "one", "first");
    MPI_Info_set(info, "two", "second");
    MPI_Info_dup(info, &copy);
    MPI_Info_get_nkeys(copy, &n);
    CHECK(n == 2);
    MPI_Info_get_nthkey(copy, 1, key);
    CHECK(strcmp(key, "two") == 0);
    MPI_Info_get_valuelen(copy, "one", &len, &flag);
    CHECK(flag && len == 5);
    MPI_Info_get(copy, "one", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(flag && strcmp(text, "first") == 0);
    MPI_Info_delete(copy, "one");
    MPI_Info_get(copy, "one", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(!flag);
    MPI_Info_free(&copy);
    MPI_Info_free(&info);
    CHECK(info == MPI_INFO_NULL);
}

/* There are none: every number is out of range, and no handle was ever given. */
static void no_variables(MPI_T_pvar_session session)
{
    int n = 0, a, b, c, d, e;
    char text[16];
    MPI_Datatype type;
    MPI_T_enum values = MPI_T_ENUM_NULL;
    MPI_T_cvar_handle control = MPI_T_CVAR_HANDLE_NULL;
    MPI_T_pvar_handle counter = MPI_T_PVAR_HANDLE_NULL;
    CHECK(MPI_T_category_changed(&n) == MPI_SUCCESS);
    CHECK(MPI_T_category_get_index("x", &n) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_category_get_info(0, text, &n, text, &n, &a, &b, &c) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_categories(0, 1, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_cvars(0, 1, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_pvars(0, 1, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_info(0, text, &n, &a, &type, &values, text, &n, &b, &c) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_handle_alloc(0, NULL, &control, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_handle_free(&control) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_cvar_read(control, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_cvar_write(control, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_enum_get_info(values, &n, text, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_enum_get_item(values, 0, &n, text, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_get_index("x", MPI_T_PVAR_CLASS_COUNTER, &n) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_get_info(0, text, &n, &a, &b, &type, &values, text, &n, &c, &d, &e, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_pvar_handle_alloc(session, 0, NULL, &counter, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_pvar_handle_free(session, &counter) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(session, counter, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_readreset(session, counter, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_write(session, counter, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_start(MPI_T_PVAR_SESSION_NULL, counter) == MPI_T_ERR_INVALID_SESSION);
}

static void tools(void)
{
    int n, level;
    MPI_T_pvar_session session;
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &level) == MPI_SUCCESS);
    CHECK(MPI_T_cvar_get_num(&n) == MPI_SUCCESS && n == 0);
    CHECK(MPI_T_pvar_get_num(&n) == MPI_SUCCESS && n == 0);
    CHECK(MPI_T_category_get_num(&n) == MPI_SUCCESS && n == 0);
    CHECK(MPI_T_cvar_get_index("eager", &n) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    no_variables(session);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    environment();
    errors();
    attributes();
    infos();
    tools();
    end("objects");
    return 0;
}
